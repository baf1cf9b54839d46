//! Listings of more names than a server gives with one answer, through a whole store: into how many
//! parts they are divided, and that every name is shown once.

use futures_util::stream::{self, BoxStream, StreamExt as _};
use object_store::path::Path;
use object_store::{
    CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};
use onefold_remote::BucketStore;
use onefold_remote::bucket::{PART_NAMES, PARTS_MAX};
use onefold_store::Blobs;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Names in order, and how many listings were begun.
#[derive(Debug)]
struct Sorted {
    names: Arc<Vec<Path>>,
    listings: AtomicU64,
}

impl fmt::Display for Sorted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("names in order")
    }
}

impl Sorted {
    fn behind(&self, first: usize) -> BoxStream<'static, Result<ObjectMeta>> {
        self.listings.fetch_add(1, Ordering::SeqCst);
        let names = Arc::clone(&self.names);
        let metas = (first..names.len()).map(move |at| {
            Ok(ObjectMeta {
                location: names[at].clone(),
                last_modified: Default::default(),
                size: 1,
                e_tag: None,
                version: None,
            })
        });
        stream::iter(metas).boxed()
    }
}

#[async_trait::async_trait]
impl ObjectStore for Sorted {
    fn list(&self, _: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.behind(0)
    }
    fn list_with_offset(
        &self,
        _: Option<&Path>,
        offset: &Path,
    ) -> BoxStream<'static, Result<ObjectMeta>> {
        self.behind(self.names.partition_point(|name| name <= offset))
    }
    async fn put_opts(&self, _: &Path, _: PutPayload, _: PutOptions) -> Result<PutResult> {
        unreachable!()
    }
    async fn put_multipart_opts(
        &self,
        _: &Path,
        _: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        unreachable!()
    }
    async fn get_opts(&self, _: &Path, _: GetOptions) -> Result<GetResult> {
        unreachable!()
    }
    fn delete_stream(
        &self,
        _: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        unreachable!()
    }
    async fn list_with_delimiter(&self, _: Option<&Path>) -> Result<ListResult> {
        unreachable!()
    }
    async fn copy_opts(&self, _: &Path, _: &Path, _: CopyOptions) -> Result<()> {
        unreachable!()
    }
}

/// Listings that are begun for so many names that are spread evenly.
fn listings(count: u64) -> u64 {
    let step = u64::from(u32::MAX) / count;
    let names = (0..count).map(|number| Path::from(format!("index/{:08x}", number * step)));
    let objects =
        Arc::new(Sorted { names: Arc::new(names.collect()), listings: AtomicU64::new(0) });
    let store = BucketStore::over(Arc::clone(&objects) as _, "long", "").unwrap();
    let mut shown = Vec::new();
    store
        .list_names("index", &mut |name| {
            shown.push(name.to_owned());
            Ok(())
        })
        .unwrap();
    shown.sort();
    let wanted: Vec<String> = objects.names.iter().map(ToString::to_string).collect();
    assert!(shown == wanted, "{} names instead of {count}", shown.len());
    objects.listings.load(Ordering::SeqCst)
}

#[test]
fn a_full_answer_is_one_request_and_a_name_more_is_another() {
    assert_eq!(listings(1000), 1);
    // Too few for parts: the listing goes on.
    assert_eq!(listings(1001), 1);
    assert_eq!(listings(10_000), 1 + 11);
}

/// PARTS_MAX: of more names the parts are longer, not more.
#[test]
fn a_listing_has_no_more_parts_than_it_may() {
    let behind_first = |parts: u64| 1000 + parts * PART_NAMES;
    // How many names there are is told to one part in some three hundred.
    let fewer = listings(behind_first(PARTS_MAX - 2));
    assert!((PARTS_MAX - 2..=PARTS_MAX).contains(&fewer), "{fewer}");
    assert_eq!(listings(behind_first(PARTS_MAX + 2)), 1 + PARTS_MAX);
    assert_eq!(listings(behind_first(PARTS_MAX * 3)), 1 + PARTS_MAX);
}
