//! What clients of Onefold's own server tell each other through it: an index that machines have in
//! common ([`CommonIndex`]), as far as that is about what they store just now.
//!
//! The server remembers what was told lately, in memory, and looks nothing up: chunks are found in
//! the store's own index, and what is not in that yet, in the news.
//!
//! Concurrency: any number of threads; what was heard is counted once, whoever asks.

use super::BucketStore;
use crate::conditional;
use crate::read_ahead::ReadAhead;
use crate::stopping::Effect;
use object_store::PutOptions;
use onefold_engine::common_index::{Claim, ClaimOrder, CommonIndex, NewContainer};
use onefold_format::notice::{self, Notice};
use onefold_types::{ContainerId, Error, Result, SessionId};
use std::sync::{Arc, Mutex, PoisonError};

/// Pages that are asked for in a row: more than a server remembers.
pub const PAGES_MAX: usize = 128;
/// Where notices are, below the directory for what is no object.
const NOTICES: &str = "notices";

/// A server as what machines have in common.
pub struct ServedNotices {
    store: Arc<ReadAhead<BucketStore>>,
    heard_news: Mutex<i64>,
    heard_claims: Mutex<i64>,
}

impl ServedNotices {
    /// Of this store's server.
    #[must_use]
    pub fn of(store: Arc<ReadAhead<BucketStore>>) -> Self {
        Self { store, heard_news: Mutex::default(), heard_claims: Mutex::default() }
    }

    /// What was told since somebody asked last.
    fn hear(&self, kind: &str, heard: &Mutex<i64>) -> Result<Vec<Notice>> {
        let mut heard = heard.lock().unwrap_or_else(PoisonError::into_inner);
        pages(&mut heard, &mut |number| self.store.inner().notices_after(kind, number))
    }
}

/// All pages of notices after a number, which is that of the last one then.
fn pages(
    heard: &mut i64,
    ask: &mut dyn FnMut(i64) -> Result<(Vec<Notice>, bool)>,
) -> Result<Vec<Notice>> {
    let mut all = Vec::new();
    for _ in 0..PAGES_MAX {
        let (page, is_more) = ask(*heard)?;
        *heard = page.last().map_or(*heard, |last| last.number.max(*heard));
        all.extend(page);
        if !is_more {
            break;
        }
    }
    Ok(all)
}

impl CommonIndex for ServedNotices {
    fn add(&self, container: ContainerId, prefixes: &[u64]) -> Result<()> {
        self.store.inner().tell("news", &container.to_string(), prefixes).map(drop)
    }

    /// Nothing is looked up there: what is new comes with the news.
    fn locate(&self, prefixes: &[u64], found: &mut Vec<Vec<ContainerId>>) -> Result<()> {
        found.resize_with(found.len() + prefixes.len(), Vec::new);
        Ok(())
    }

    fn news(&self) -> Result<Vec<NewContainer>> {
        let news = self.hear("news", &self.heard_news)?;
        Ok(news.into_iter().map(|one| (ContainerId(one.name), one.prefixes)).collect())
    }

    fn claim(&self, by: SessionId, prefixes: &[u64]) -> Result<(ClaimOrder, Vec<Claim>)> {
        let number = self.store.inner().tell("claims", &by.to_string(), prefixes)?;
        Ok((ClaimOrder(number, by), self.claims()?))
    }

    fn claims(&self) -> Result<Vec<Claim>> {
        let claims = self.hear("claims", &self.heard_claims)?;
        let claim = |one: Notice| (ClaimOrder(one.number, SessionId(one.name)), one.prefixes);
        Ok(claims.into_iter().map(claim).collect())
    }
}

impl BucketStore {
    /// Tells other clients something; the number that it has then. Asked again it is told twice.
    fn tell(&self, kind: &str, name: &str, prefixes: &[u64]) -> Result<i64> {
        self.refuse_writing()?;
        let path = self.below(conditional::DIRECTORY).join(NOTICES).join(kind).join(name);
        let packed = notice::pack(prefixes);
        let length = packed.len() as u64;
        let put = self.objects.put_opts(&path, packed.into(), PutOptions::default());
        let told = self.wait_for(Effect::Write, length, put);
        let told = told.map_err(|answer| self.failed("telling other clients", &answer))?;
        number_of(told.e_tag.as_deref())
    }

    /// What was told after a number, a page of it, and whether there is more.
    fn notices_after(&self, kind: &str, number: i64) -> Result<(Vec<Notice>, bool)> {
        let path = self.below(conditional::DIRECTORY).join(NOTICES).join(kind);
        let (bytes, e_tag) = self.whole_told(&path.join(number.to_string()))?;
        Ok((notice::decode(&bytes)?, number_of(e_tag.as_deref())? > 0))
    }
}

fn number_of(e_tag: Option<&str>) -> Result<i64> {
    let number = e_tag.and_then(|tag| tag.trim_matches('"').parse().ok());
    number.ok_or_else(|| Error::damaged("the server does not say which number a notice has"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of a server that always has more no more than PAGES_MAX pages are taken at once.
    #[test]
    fn pages_are_asked_for_until_there_are_no_more_and_not_for_ever() {
        let page = |after: i64| vec![Notice { number: after + 1, name: [0; 16], prefixes: vec![] }];
        let mut heard = 0;
        let some = pages(&mut heard, &mut |after| Ok((page(after), after < 2))).unwrap();
        assert_eq!((some.len(), heard), (3, 3));
        let all = pages(&mut heard, &mut |after| Ok((page(after), true))).unwrap();
        assert_eq!((all.len(), heard), (PAGES_MAX, 3 + PAGES_MAX as i64));
        let none = pages(&mut heard, &mut |_| Ok((Vec::new(), false))).unwrap();
        assert_eq!((none.len(), heard), (0, 3 + PAGES_MAX as i64));
    }
}
