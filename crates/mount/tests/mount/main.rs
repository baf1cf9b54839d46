//! Names and numbers of what is mounted. What programs see of a mount is tested with the command
//! line, which has the stores for it.

mod catalogue;
mod inodes;
mod opening;
