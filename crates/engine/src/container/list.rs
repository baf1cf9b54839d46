//! The names of the containers in a store, and of the packs of their metadata sections.

use crate::repository::Repository;
use onefold_format::layout;
use onefold_types::{ContainerId, Result};

/// The names of all containers in the store, rising, in as little memory as they take.
pub fn container_names(repository: &Repository) -> Result<Vec<ContainerId>> {
    let mut ids = Vec::new();
    repository.store().list_names(layout::CONTAINERS, &mut |name| {
        ids.extend(layout::container_of(name));
        Ok(())
    })?;
    ids.sort_unstable();
    ids.dedup();
    Ok(ids)
}

/// The elements of `all` that are not in `others`; both rise.
pub fn difference(all: &[ContainerId], others: &[ContainerId]) -> Vec<ContainerId> {
    let mut others = others.iter().peekable();
    let mut difference = Vec::new();
    for id in all {
        while others.next_if(|other| *other < id).is_some() {}
        if others.peek() != Some(&id) {
            difference.push(*id);
        }
    }
    difference
}

/// The names of all metadata packs; what has another name than a pack may have is none.
pub fn list_packs(repository: &Repository) -> Result<Vec<String>> {
    let mut names = Vec::new();
    repository.store().list_names(layout::METADATA, &mut |name| {
        let pack = layout::last_component(name).parse::<ContainerId>();
        names.extend(pack.map(layout::metadata_pack));
        Ok(())
    })?;
    names.sort_unstable();
    Ok(names)
}
