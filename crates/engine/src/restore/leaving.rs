//! Directories that are left: their attributes are set when nothing more is done in them.

use super::metadata::{Attributes, Present};
use super::target::Directory;
use std::sync::Arc;

/// A directory whose attributes are still to be set.
pub struct Leaving {
    /// It.
    pub directory: Arc<Directory>,
    /// What it is to have.
    pub attributes: Attributes,
}

impl Leaving {
    /// What the directory has at present.
    #[must_use]
    pub fn present(&self) -> Present {
        Present {
            uid: self.directory.owner.0,
            gid: self.directory.owner.1,
            attributes: !self.directory.fresh || self.directory.inherits_acl,
            keeps: self.directory.keeps_attributes(self.directory.identity().0),
        }
    }
}
