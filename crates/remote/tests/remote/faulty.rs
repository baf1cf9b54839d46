//! An object store that breaks its promises, or tells what it was asked.

use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{
    CopyOptions, Error as Answer, GetOptions, GetRange, GetResult, ListResult, MultipartUpload,
    ObjectMeta, ObjectStore, PutMode, PutMultipartOptions, PutOptions, PutPayload, PutResult,
    Result,
};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;
use std::time::{Duration, Instant};

/// Time for what is asked for together.
const TOGETHER_MAX: Duration = Duration::from_secs(2);

/// How an object store breaks its promises.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Fault {
    /// It does not.
    #[default]
    None,
    /// Puts that must not replace anything do.
    Replaces,
    /// Each of two that put a name at once may win.
    Races,
    /// A put is done, and its answer is lost; so many times.
    LosesAnswers(usize),
    /// So many puts are told that the name is taken, which it is not, or not yet.
    TakesBeforehand(usize),
    /// What was put is not listed.
    ListsNothing,
    /// What is deleted stays.
    KeepsAll,
    /// A part of an object begins with its first byte, wherever it should.
    GivesBeginnings,
}

/// An object store in memory with a fault, that counts what it is asked.
#[derive(Debug, Default)]
pub struct Faulty {
    pub below: Arc<InMemory>,
    fault: Fault,
    pub puts: AtomicUsize,
    /// Gets and listings that were begun, and those that were answered.
    pub asked: AtomicUsize,
    pub answered: Arc<AtomicUsize>,
    /// So many gets fail.
    pub failing_gets: AtomicUsize,
    /// Checkpoints are given once so many of them were asked for, and how many were not in time.
    pub together: AtomicUsize,
    pub alone: AtomicUsize,
    asked_together: AtomicUsize,
}

impl Faulty {
    pub fn new(fault: Fault) -> Self {
        Self { fault, ..Self::default() }
    }
}

impl Faulty {
    async fn wait_for_others(&self) {
        self.asked_together.fetch_add(1, Ordering::SeqCst);
        let began = Instant::now();
        let together = self.together.load(Ordering::SeqCst);
        while self.asked_together.load(Ordering::SeqCst) < together {
            if began.elapsed() > TOGETHER_MAX {
                self.alone.fetch_add(1, Ordering::SeqCst);
                return;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
}

impl fmt::Display for Faulty {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.fault)
    }
}

#[async_trait::async_trait]
impl ObjectStore for Faulty {
    async fn put_opts(
        &self,
        location: &Path,
        payload: PutPayload,
        options: PutOptions,
    ) -> Result<PutResult> {
        let number = self.puts.fetch_add(1, Ordering::SeqCst);
        let replaces = match self.fault {
            Fault::Replaces => true,
            Fault::Races => location.as_ref().contains("race-") && number.is_multiple_of(4),
            _ => false,
        };
        if matches!(self.fault, Fault::TakesBeforehand(most) if number < most) {
            let path = location.to_string();
            return Err(Answer::AlreadyExists { path, source: "another one comes".into() });
        }
        let mode = if replaces { PutMode::Overwrite } else { options.mode.clone() };
        let put = self.below.put_opts(location, payload, PutOptions { mode, ..options }).await;
        match self.fault {
            Fault::LosesAnswers(most) if number < most => {
                Err(Answer::Generic { store: "faulty", source: "connection reset".into() })
            }
            _ => put,
        }
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.below.put_multipart_opts(location, options).await
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        if location.as_ref().contains("checkpoints/") {
            self.wait_for_others().await;
        }
        let range = match (self.fault, options.range) {
            (Fault::GivesBeginnings, Some(GetRange::Bounded(range))) => {
                Some(GetRange::Bounded(0..range.end - range.start))
            }
            (_, range) => range,
        };
        let options = GetOptions { range, ..options };
        let less = |left: usize| left.checked_sub(1);
        let fails = self.failing_gets.fetch_update(Ordering::SeqCst, Ordering::SeqCst, less);
        let got = match fails {
            Ok(_) => Err(Answer::Generic { store: "faulty", source: "broken".into() }),
            Err(_) => self.below.get_opts(location, options).await,
        };
        self.answered.fetch_add(1, Ordering::SeqCst);
        got
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        match self.fault {
            Fault::KeepsAll => locations,
            _ => self.below.delete_stream(locations),
        }
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        let answered = Arc::clone(&self.answered);
        let end = futures_util::stream::poll_fn(move |_| {
            answered.fetch_add(1, Ordering::SeqCst);
            Poll::Ready(None)
        });
        match self.fault {
            Fault::ListsNothing => end.boxed(),
            _ => self.below.list(prefix).chain(end).boxed(),
        }
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.below.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.below.copy_opts(from, to, options).await
    }
}
