//! Which file of a crate uses which: paths from `use` and from code, followed through re-exports.

use crate::workspace::{Crate, SourceFile, is_test};
use std::collections::{BTreeMap, BTreeSet};
use syn::visit::{self, Visit};
use syn::{Attribute, Item, UseTree, Visibility};

/// A file that uses something that another file defines.
pub struct Import<'a> {
    pub from: &'a SourceFile,
    pub to: &'a SourceFile,
}

/// All imports between the files of a crate, without those of tests and without re-exports of a
/// module's own children, which are its table of contents.
pub fn imports(member: &Crate) -> Vec<Import<'_>> {
    let index = Index::new(member);
    let mut found = Vec::new();
    for (number, file) in member.sources.iter().enumerate().filter(|(_, file)| !file.is_test) {
        let mut collector = Collector {
            module: file.module.clone(),
            contents: index.has_children(number),
            paths: BTreeSet::new(),
        };
        collector.visit_file(&file.syntax);
        let targets: BTreeSet<usize> = collector
            .paths
            .iter()
            .filter_map(|path| index.resolve(path, 0))
            .filter(|&to| to != number)
            .collect();
        found.extend(targets.into_iter().map(|to| Import { from: file, to: &member.sources[to] }));
    }
    found
}

type ModulePath = Vec<String>;

/// The crate's modules and what each names without defining it.
struct Index<'a> {
    modules: BTreeMap<&'a [String], usize>,
    reexports: BTreeMap<(usize, String), ModulePath>,
}

impl<'a> Index<'a> {
    fn new(member: &'a Crate) -> Self {
        let modules = member.sources.iter().enumerate().map(|(i, file)| (&file.module[..], i)).collect();
        let mut reexports = BTreeMap::new();
        for (number, file) in member.sources.iter().enumerate() {
            for item in &file.syntax.items {
                let Item::Use(item) = item else { continue };
                let mut leaves = Vec::new();
                flatten(&item.tree, &mut Vec::new(), &mut leaves);
                for (path, name) in leaves {
                    reexports.insert((number, name), absolute(&file.module, &path));
                }
            }
        }
        Self { modules, reexports }
    }

    fn has_children(&self, number: usize) -> bool {
        let Some((module, _)) = self.modules.iter().find(|(_, i)| **i == number) else { return false };
        self.modules.keys().any(|other| other.len() == module.len() + 1 && other.starts_with(module))
    }

    /// The file that defines what `path`, from the crate's root, names.
    fn resolve(&self, path: &[String], depth: usize) -> Option<usize> {
        let (mut module, mut rest) = (0, path);
        while module < path.len() && self.modules.contains_key(&path[..=module]) {
            module += 1;
            rest = &path[module..];
        }
        let file = *self.modules.get(&path[..module])?;
        let Some(name) = rest.first() else { return Some(file) };
        match self.reexports.get(&(file, name.clone())) {
            Some(target) if depth < 8 => {
                let longer: Vec<_> = target.iter().chain(&rest[1..]).cloned().collect();
                self.resolve(&longer, depth + 1)
            }
            _ => Some(file),
        }
    }
}

/// The paths of a file that lead into its own crate, from the crate's root.
struct Collector {
    module: ModulePath,
    /// Whether the file's re-exports are a table of contents.
    contents: bool,
    paths: BTreeSet<ModulePath>,
}

impl Collector {
    fn add(&mut self, path: &[String]) {
        if matches!(path.first().map(String::as_str), Some("crate" | "super" | "self")) {
            self.paths.insert(absolute(&self.module, path));
        }
    }
}

impl<'ast> Visit<'ast> for Collector {
    fn visit_item(&mut self, item: &'ast Item) {
        if !is_test(attributes(item)) {
            visit::visit_item(self, item);
        }
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        if self.contents && !matches!(item.vis, Visibility::Inherited) {
            return;
        }
        let mut leaves = Vec::new();
        flatten(&item.tree, &mut Vec::new(), &mut leaves);
        leaves.iter().for_each(|(path, _)| self.add(path));
    }

    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        self.module.push(item.ident.to_string());
        visit::visit_item_mod(self, item);
        self.module.pop();
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let segments: Vec<_> = path.segments.iter().map(|segment| segment.ident.to_string()).collect();
        if segments.len() > 1 {
            self.add(&segments);
        }
        visit::visit_path(self, path);
    }

    fn visit_attribute(&mut self, _: &'ast Attribute) {}
}

/// Every leaf of a tree of imports: its path, and the name that it gets here.
fn flatten(tree: &UseTree, prefix: &mut ModulePath, leaves: &mut Vec<(ModulePath, String)>) {
    match tree {
        UseTree::Path(path) => {
            prefix.push(path.ident.to_string());
            flatten(&path.tree, prefix, leaves);
            prefix.pop();
        }
        UseTree::Group(group) => group.items.iter().for_each(|tree| flatten(tree, prefix, leaves)),
        UseTree::Name(name) if name.ident == "self" => {
            leaves.push((prefix.clone(), prefix.last().cloned().unwrap_or_default()));
        }
        UseTree::Name(name) => leaves.push(named(prefix, &name.ident, &name.ident)),
        UseTree::Rename(rename) => leaves.push(named(prefix, &rename.ident, &rename.rename)),
        UseTree::Glob(_) => leaves.push((prefix.clone(), String::from("*"))),
    }
}

fn named(prefix: &[String], ident: &syn::Ident, name: &syn::Ident) -> (ModulePath, String) {
    (prefix.iter().cloned().chain([ident.to_string()]).collect(), name.to_string())
}

/// `path` from the crate's root, as written in `module`. A path without `crate`, `self` or `super`
/// is one of a child, or of another crate, which no module of this one answers to.
fn absolute(module: &[String], path: &[String]) -> ModulePath {
    let mut base = module.to_vec();
    let mut rest = path;
    if path.first().is_some_and(|first| first == "crate") {
        base.clear();
        rest = &path[1..];
    }
    while let Some(first) = rest.first() {
        match first.as_str() {
            "self" => {}
            "super" => {
                base.pop();
            }
            _ => break,
        }
        rest = &rest[1..];
    }
    base.extend(rest.iter().cloned());
    base
}

fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}
