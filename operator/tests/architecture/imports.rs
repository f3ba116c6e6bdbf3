//! Imports between the files of a crate. A re-export counts as an import of the file that defines the item.

use std::collections::{BTreeMap, BTreeSet};

use super::source::{File, Files, Module, Named};

/// Import of a file: an item of another file.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Import {
    pub(crate) from: Module,
    pub(crate) to: Module,
    /// Description for messages, such as `a.rs:3 imports Thing of b.rs`.
    pub(crate) told: String,
}

/// All imports of a crate.
#[derive(Debug)]
pub(crate) struct Imports(pub BTreeSet<Import>);

impl Imports {
    pub(crate) fn of(files: &Files) -> Self {
        let mut imports = BTreeSet::new();
        for (module, file) in &files.by_module {
            for named in &file.named {
                let Some(path) = absolute(files, named) else { continue };
                let (target, name) = resolve(files, &path, &mut BTreeSet::new());
                let to = file_of(files, &target);
                if to == *module {
                    continue;
                }
                let name = name.unwrap_or_else(|| "the module".to_owned());
                let (here, there) = (file.path.display(), files.by_module[&to].path.display());
                let told = format!("{here}:{} imports {name} of {there}", named.line);
                imports.insert(Import { from: module.clone(), to, told });
            }
        }
        Self(imports)
    }

    /// Returns the other areas that an area imports.
    pub(crate) fn areas_of(&self, area: &str) -> BTreeSet<String> {
        let within = self.0.iter().filter(|import| import.from.first().is_some_and(|first| first == area));
        within.filter_map(|import| import.to.first()).filter(|to| *to != area).cloned().collect()
    }
}

/// Lists the places where files of these areas name a forbidden crate, or a forbidden module of `std`. An empty `areas`
/// stands for all areas.
pub(crate) fn outside(files: &Files, areas: &[&str], forbidden: &[&str]) -> Vec<String> {
    let mut found = BTreeSet::new();
    for (module, file) in &files.by_module {
        if !areas.is_empty() && !module.first().is_some_and(|area| areas.contains(&area.as_str())) {
            continue;
        }
        for named in &file.named {
            let is_own = absolute(files, named).is_some();
            let path = named.path.join("::");
            let hit = forbidden.iter().find(|outside| path == **outside || path.starts_with(&format!("{outside}::")));
            if let Some(outside) = hit.filter(|_| !is_own) {
                found.insert((
                    file.path.display().to_string(),
                    named.line,
                    format!("{}:{} names {outside}", file.path.display(), named.line),
                ));
            }
        }
    }
    found.into_iter().map(|(_, _, told)| told).collect()
}

/// Returns the path from the root of the crate. Returns `None` for a local name and for an item of another crate.
fn absolute(files: &Files, named: &Named) -> Option<Module> {
    let mut here = named.inside.clone();
    let mut rest = named.path.as_slice();
    match rest.first()?.as_str() {
        "crate" => return Some(rest[1..].to_vec()),
        "self" => rest = &rest[1..],
        "super" => {}
        first => {
            here.push(first.to_owned());
            return files.modules.contains(&here).then(|| [&named.inside[..], rest].concat());
        }
    }
    while let Some((first, others)) = rest.split_first()
        && first == "super"
    {
        here.pop();
        rest = others;
    }
    Some([&here[..], rest].concat())
}

/// Returns the module whose file contains this module.
fn file_of(files: &Files, module: &[String]) -> Module {
    let mut module = module.to_vec();
    while !module.is_empty() && !files.by_module.contains_key(&module) {
        module.pop();
    }
    module
}

/// Returns the module that defines the item at a path, and the item's name there.
fn resolve(files: &Files, path: &[String], seen: &mut BTreeSet<Module>) -> (Module, Option<String>) {
    let length =
        (0..=path.len()).rev().find(|length| *length == 0 || files.modules.contains(&path[..*length])).unwrap_or(0);
    let (module, rest) = (path[..length].to_vec(), &path[length..]);
    let Some(name) = rest.first().filter(|name| *name != "*") else { return (module, None) };
    let unknown = || (module.clone(), Some(name.clone()));
    let Some(file) = files.by_module.get(&file_of(files, &module)) else { return unknown() };
    if defines(file, &module, name) || !seen.insert(path.to_vec()) {
        return unknown();
    }
    let imports = || file.named.iter().filter(|named| named.inside == module);
    if let Some(named) = imports().find(|named| named.binding.as_ref() == Some(name))
        && let Some(target) = absolute(files, named)
    {
        return resolve(files, &[&target[..], &rest[1..]].concat(), seen);
    }
    for named in imports().filter(|named| named.binding.as_deref() == Some("*")) {
        if let Some(target) = absolute(files, named) {
            let (at, found) = resolve(files, &[&target[..target.len() - 1], rest].concat(), seen);
            let defining = files.by_module.get(&file_of(files, &at));
            if let (Some(found), Some(defining)) = (found, defining)
                && defines(defining, &at, &found)
            {
                return (at, Some(found));
            }
        }
    }
    unknown()
}

fn defines(file: &File, module: &Module, name: &str) -> bool {
    file.defined.iter().any(|(inside, defined)| inside == module && defined == name)
}

/// Groups the imports by folder. In each folder, maps a pair of its modules to the imports between them; a module
/// includes all modules below it.
pub(crate) fn levels(imports: &Imports) -> BTreeMap<Module, BTreeMap<(String, String), Vec<String>>> {
    let mut levels: BTreeMap<Module, BTreeMap<(String, String), Vec<String>>> = BTreeMap::new();
    for import in &imports.0 {
        let common = import.from.iter().zip(&import.to).take_while(|(from, to)| from == to).count();
        // An import between a module and a module inside it does not count.
        if let (Some(from), Some(to)) = (import.from.get(common), import.to.get(common)) {
            let level = levels.entry(import.from[..common].to_vec()).or_default();
            level.entry((from.clone(), to.clone())).or_default().push(import.told.clone());
        }
    }
    levels
}
