//! Which file of a crate uses which other one.
//!
//! Every path in the source is followed: through modules as far as its parts name modules, then
//! through `pub use` to where the name was defined. A file uses the file that its path ends in.
//! That a module puts its own parts together is no use of theirs: a circle is one of parts that
//! need each other, or of a part that needs what puts it together. Tests count for nothing.

use crate::files::File;
use std::collections::{BTreeMap, BTreeSet};
use syn::visit::Visit;

/// How many exports a name may pass through.
const EXPORTS_MAX: usize = 8;

/// The files of one crate, by module path, and what each uses.
#[derive(Debug, Default)]
pub struct Imports {
    files: BTreeMap<Vec<String>, Source>,
}

#[derive(Debug, Default)]
struct Source {
    path: String,
    uses: Vec<Vec<String>>,
    exports: BTreeMap<String, Vec<String>>,
}

impl Imports {
    /// Reads the sources of a crate, given all files below its `src`.
    ///
    /// Panics if one is no Rust.
    #[must_use]
    pub fn of(source: &str, files: &[File]) -> Self {
        let mut imports = Self::default();
        let modules: BTreeSet<_> = files.iter().map(|file| module_of(source, &file.path)).collect();
        for file in files {
            let module = module_of(source, &file.path);
            let parsed = syn::parse_file(&file.text())
                .unwrap_or_else(|error| panic!("{}: {error}", file.path));
            let mut reader =
                Reader { module: &module, modules: &modules, found: Source::default() };
            reader.visit_file(&parsed);
            let found = Source { path: file.path.clone(), ..reader.found };
            imports.files.insert(module, found);
        }
        imports
    }

    /// What each file uses of the others, by path.
    #[must_use]
    pub fn edges(&self) -> BTreeMap<&str, BTreeSet<&str>> {
        let mut edges = BTreeMap::new();
        for (module, source) in &self.files {
            let is_part =
                |path: &&Vec<String>| path.len() > module.len() && path.starts_with(module);
            let used: BTreeSet<&str> = source
                .uses
                .iter()
                .filter(|path| !is_part(path))
                .map(|path| self.defined_in(path, EXPORTS_MAX))
                .filter(|other| *other != source.path)
                .collect();
            edges.insert(source.path.as_str(), used);
        }
        edges
    }

    /// The file in which what a path names is defined.
    fn defined_in(&self, path: &[String], exports_left: usize) -> &str {
        let depth = (0..=path.len()).rev().find(|&depth| self.files.contains_key(&path[..depth]));
        let depth = depth.unwrap_or_default();
        let Some(source) = self.files.get(&path[..depth]) else {
            return "";
        };
        match path.get(depth).and_then(|name| source.exports.get(name)) {
            Some(export) => {
                assert!(exports_left > 0, "{path:?} is exported more than {EXPORTS_MAX} times");
                let path: Vec<String> = export.iter().chain(&path[depth + 1..]).cloned().collect();
                self.defined_in(&path, exports_left - 1)
            }
            None => &source.path,
        }
    }
}

/// Groups of files that use each other in a circle, directly or by way of others; each sorted, the
/// largest first.
#[must_use]
pub fn circles<'a>(edges: &BTreeMap<&'a str, BTreeSet<&'a str>>) -> Vec<Vec<&'a str>> {
    let reached = |from: &'a str| {
        let mut reached = BTreeSet::new();
        let mut left: Vec<&str> = edges.get(from).into_iter().flatten().copied().collect();
        while let Some(file) = left.pop() {
            if reached.insert(file) {
                left.extend(edges.get(file).into_iter().flatten());
            }
        }
        reached
    };
    let all: BTreeMap<&str, BTreeSet<&str>> =
        edges.keys().map(|file| (*file, reached(file))).collect();
    let mut circles = BTreeSet::new();
    for (file, reached) in &all {
        if reached.contains(file) {
            let circle: Vec<&str> =
                reached.iter().filter(|other| all[*other].contains(file)).copied().collect();
            circles.insert(circle);
        }
    }
    let mut circles: Vec<_> = circles.into_iter().collect();
    circles.sort_by_key(|circle| std::cmp::Reverse(circle.len()));
    circles
}

/// The module that a file is, from the root of its crate.
fn module_of(source: &str, path: &str) -> Vec<String> {
    let inner = path.strip_prefix(source).unwrap_or(path).trim_matches('/');
    let mut module: Vec<String> =
        inner.trim_end_matches(".rs").split('/').map(str::to_owned).collect();
    let is_root = |name: &String| name == "mod" || name == "lib" || name == "main";
    if module.last().is_some_and(is_root) {
        module.pop();
    }
    module
}

struct Reader<'a> {
    module: &'a [String],
    modules: &'a BTreeSet<Vec<String>>,
    found: Source,
}

impl Reader<'_> {
    /// A path from the root of the crate; `None` if it leads to another crate.
    fn absolute(&self, path: &[String]) -> Option<Vec<String>> {
        let (first, mut rest) = path.split_first()?;
        let mut module = self.module.to_vec();
        match first.as_str() {
            "crate" => module.clear(),
            "self" => {}
            "super" => {
                module.pop();
                while let Some((_, after)) = rest.split_first().filter(|(name, _)| *name == "super")
                {
                    module.pop();
                    rest = after;
                }
            }
            name => {
                module.push(name.to_owned());
                if !self.modules.contains(&module) {
                    return None;
                }
            }
        }
        module.extend(rest.iter().cloned());
        Some(module)
    }

    fn take(&mut self, tree: &syn::UseTree, before: &mut Vec<String>, is_export: bool) {
        match tree {
            syn::UseTree::Path(path) => {
                before.push(path.ident.to_string());
                self.take(&path.tree, before, is_export);
                before.pop();
            }
            syn::UseTree::Name(name) => {
                let name = name.ident.to_string();
                self.take_name(before, &name, &name, is_export);
            }
            syn::UseTree::Rename(name) => {
                let (name, renamed) = (name.ident.to_string(), name.rename.to_string());
                self.take_name(before, &name, &renamed, is_export);
            }
            syn::UseTree::Glob(_) => self.found.uses.extend(self.absolute(before)),
            syn::UseTree::Group(group) => {
                for tree in &group.items {
                    self.take(tree, before, is_export);
                }
            }
        }
    }

    fn take_name(&mut self, before: &[String], name: &str, known_as: &str, is_export: bool) {
        let mut path = before.to_vec();
        path.extend((name != "self").then(|| name.to_owned()));
        let Some(path) = self.absolute(&path) else { return };
        let is_own = path.starts_with(self.module);
        if is_export {
            self.found.exports.insert(known_as.to_owned(), path.clone());
        }
        if !(is_export && is_own) {
            self.found.uses.push(path);
        }
    }
}

fn is_test(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let list = attribute.meta.require_list();
        attribute.path().is_ident("cfg")
            && list.is_ok_and(|list| list.tokens.to_string().contains("test"))
    })
}

impl<'a> Visit<'a> for Reader<'_> {
    fn visit_item_use(&mut self, item: &'a syn::ItemUse) {
        if !is_test(&item.attrs) {
            let is_export = !matches!(item.vis, syn::Visibility::Inherited);
            self.take(&item.tree, &mut Vec::new(), is_export);
        }
    }

    fn visit_item_mod(&mut self, item: &'a syn::ItemMod) {
        if !is_test(&item.attrs) {
            syn::visit::visit_item_mod(self, item);
        }
    }

    fn visit_path(&mut self, path: &'a syn::Path) {
        let names: Vec<String> = path.segments.iter().map(|one| one.ident.to_string()).collect();
        if names.len() > 1 {
            self.found.uses.extend(self.absolute(&names));
        }
        syn::visit::visit_path(self, path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn edges(files: &[(&str, &str)]) -> Vec<String> {
        let file = |(path, text): &(&str, &str)| File {
            path: format!("c/src/{path}"),
            bytes: text.as_bytes().to_vec(),
        };
        let files: Vec<File> = files.iter().map(file).collect();
        let imports = Imports::of("c/src", &files);
        let edges = imports.edges();
        let lines = edges.iter().flat_map(|(from, to)| to.iter().map(move |to| (from, to)));
        lines.map(|(from, to)| format!("{} > {}", &from[6..], &to[6..])).collect()
    }

    #[test]
    fn a_name_is_followed_to_where_it_is_defined() {
        let files = [
            ("lib.rs", "pub mod a;\npub mod b;\npub use a::inner::Name;"),
            ("a.rs", "pub mod inner;\npub use inner::Name;\nuse inner::other;"),
            ("a/inner.rs", "pub struct Name;\nuse super::super::b;"),
            ("b.rs", "use crate::{a::{Name as N, self}};\nfn f() { crate::a::inner::g() }"),
            ("c.rs", "#[cfg(test)]\nmod tests { use super::*; use crate::a; }\nuse crate::Name;"),
        ];
        assert_eq!(
            edges(&files),
            ["a/inner.rs > b.rs", "b.rs > a.rs", "b.rs > a/inner.rs", "c.rs > a/inner.rs"]
        );
    }

    fn chain(exports: usize) -> Vec<String> {
        let mut files = vec![("lib.rs".to_owned(), String::new())];
        for number in 0..exports {
            let text = format!("pub use crate::m{}::Name;", number + 1);
            files.push((format!("m{number}.rs"), text));
        }
        files.push((format!("m{exports}.rs"), "pub struct Name;".to_owned()));
        files.push(("user.rs".to_owned(), "use crate::m0::Name;".to_owned()));
        let files: Vec<(&str, &str)> =
            files.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
        edges(&files)
    }

    #[test]
    fn a_name_may_pass_through_so_many_exports() {
        let last = format!("user.rs > m{EXPORTS_MAX}.rs");
        assert!(chain(EXPORTS_MAX).contains(&last));
    }

    #[test]
    fn more_exports_than_that_are_no_silence() {
        let panic = std::panic::catch_unwind(|| chain(EXPORTS_MAX + 1)).unwrap_err();
        let message = panic.downcast_ref::<String>().unwrap();
        assert!(message.contains("exported more than 8 times"), "{message}");
    }

    #[test]
    fn a_circle_is_found_however_long() {
        let edges = |pairs: &[(&'static str, &'static str)]| {
            let mut edges: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
            for (from, to) in pairs {
                edges.entry(*from).or_default().insert(to);
                edges.entry(*to).or_default();
            }
            edges
        };
        assert!(circles(&edges(&[("a", "b"), ("a", "c"), ("b", "c")])).is_empty());
        let found = circles(&edges(&[
            ("a", "b"),
            ("b", "c"),
            ("c", "a"),
            ("d", "a"),
            ("e", "d"),
            ("d", "e"),
        ]));
        assert_eq!(found, [vec!["a", "b", "c"], vec!["d", "e"]]);
    }
}
