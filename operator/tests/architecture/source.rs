//! Names in Rust sources: modules, definitions, `use` trees and paths. Code that only tests have is left out.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    path::{Path, PathBuf},
};

use proc_macro2::{Delimiter, TokenStream, TokenTree};

/// Path of a module: the names of the modules from the root of the crate to this one.
pub(crate) type Module = Vec<String>;

/// Path in a source, and the name that it is imported under.
#[derive(Debug, Clone)]
pub(crate) struct Named {
    /// The parts of the path, with `crate`, `super` and `self`. A `*` at the end imports everything.
    pub(crate) path: Vec<String>,
    /// Name that an import brings into scope.
    pub(crate) binding: Option<String>,
    /// Module that contains the path. It may be a module inside the file.
    pub(crate) inside: Module,
    pub(crate) line: usize,
}

/// One file.
#[derive(Debug, Default)]
pub(crate) struct File {
    /// Path of the file, relative to the `src` of its crate.
    pub(crate) path: PathBuf,
    pub(crate) named: Vec<Named>,
    /// Names that the file defines, with the module of each.
    pub(crate) defined: Vec<(Module, String)>,
    /// Modules inside the file.
    inline: Vec<Module>,
    /// Modules that only tests have.
    for_tests: Vec<Module>,
    elsewhere: Vec<(PathBuf, Module)>,
}

/// The files of one crate.
#[derive(Debug, Default)]
pub(crate) struct Files {
    pub(crate) by_module: BTreeMap<Module, File>,
    /// All modules, with the modules inside files.
    pub(crate) modules: BTreeSet<Module>,
}

impl Files {
    /// Reads all Rust files below a folder.
    pub(crate) fn below(folder: &Path) -> io::Result<Self> {
        let mut texts = Vec::new();
        let mut folders = vec![folder.to_owned()];
        while let Some(next) = folders.pop() {
            for entry in fs::read_dir(next)? {
                let path = entry?.path();
                if path.is_dir() {
                    folders.push(path);
                } else if path.extension().is_some_and(|extension| extension == "rs") {
                    let below = path.strip_prefix(folder).map_err(io::Error::other)?.to_owned();
                    texts.push((below, fs::read_to_string(&path)?));
                }
            }
        }
        Self::read(texts).map_err(io::Error::other)
    }

    /// Reads files from their paths and texts. Leaves out programs: they have their own roots and import the library
    /// like another crate.
    pub(crate) fn read(texts: impl IntoIterator<Item = (PathBuf, String)>) -> Result<Self, String> {
        let mut files = BTreeMap::new();
        for (path, text) in texts {
            if path == Path::new("main.rs") || path.starts_with("bin") {
                continue;
            }
            let tokens: TokenStream =
                text.parse().map_err(|error| format!("{} is no Rust: {error}", path.display()))?;
            let module = module_of(&path);
            let mut file = File { path, ..File::default() };
            read(tokens, &module, true, &mut file);
            files.insert(module, file);
        }
        let moved: Vec<_> = files.values().flat_map(|file| file.elsewhere.clone()).collect();
        for (path, module) in moved {
            if let Some(old) = files.iter().find(|(_, file)| file.path == path).map(|(old, _)| old.clone())
                && let Some(file) = files.remove(&old)
            {
                files.insert(module, file);
            }
        }
        let for_tests: Vec<Module> = files.values().flat_map(|file| file.for_tests.clone()).collect();
        files.retain(|module, _| !for_tests.iter().any(|test| module.starts_with(test)));
        let inline = files.values().flat_map(|file| file.inline.iter().cloned());
        let modules = files.keys().cloned().chain(inline).collect();
        Ok(Self { by_module: files, modules })
    }
}

fn module_of(path: &Path) -> Module {
    let mut module: Module = path.with_extension("").iter().map(|part| part.to_string_lossy().into_owned()).collect();
    if module.last().is_some_and(|last| last == "mod") || module == ["lib"] {
        module.pop();
    }
    module
}

/// Keywords that are followed by the name that they define.
const DEFINING: [&str; 9] = ["fn", "struct", "enum", "trait", "type", "const", "static", "union", "macro_rules"];

fn read(tokens: TokenStream, inside: &Module, at_items: bool, file: &mut File) {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    let mut at = 0;
    let mut only_tests = false;
    let mut path_attribute = None;
    while let Some(token) = tokens.get(at) {
        match token {
            TokenTree::Punct(punct) if punct.as_char() == '#' => {
                let mut next = at + 1;
                if is_punct(tokens.get(next), '!') {
                    next += 1;
                }
                if let Some(TokenTree::Group(group)) = tokens.get(next)
                    && group.delimiter() == Delimiter::Bracket
                {
                    let words: String = group.stream().into_iter().map(|token| token.to_string()).collect();
                    only_tests |= words.starts_with("cfg(") && words.contains("test") && !words.contains("not");
                    if let Some(path) = words.strip_prefix("path=") {
                        path_attribute = Some(path.trim_matches('"').to_owned());
                    }
                    at = next;
                }
                at += 1;
                continue;
            }
            TokenTree::Ident(ident) => {
                let word = ident.to_string();
                let next = tokens.get(at + 1).and_then(word_of);
                if word == "mod"
                    && at_items
                    && let Some(name) = next
                {
                    let mut module = inside.clone();
                    module.push(name);
                    if let Some(path) = path_attribute.take() {
                        let folder = file.path.parent().unwrap_or(Path::new(""));
                        file.elsewhere.push((folder.join(path), module.clone()));
                    }
                    if only_tests {
                        file.for_tests.push(module);
                    } else if let Some(TokenTree::Group(group)) = tokens.get(at + 2) {
                        file.inline.push(module.clone());
                        read(group.stream(), &module, true, file);
                    }
                    (at, only_tests) = (at + 3, false);
                    continue;
                }
                if only_tests {
                    // Skips the item, which ends with its braces or with a semicolon.
                    while let Some(token) = tokens.get(at) {
                        at += 1;
                        let is_body = matches!(token, TokenTree::Group(group) if group.delimiter() == Delimiter::Brace);
                        // The braces of a `use` tree do not end the item.
                        if is_punct(Some(token), ';') || is_punct(Some(token), ',') || (is_body && word != "use") {
                            break;
                        }
                    }
                    only_tests = false;
                    continue;
                }
                if word == "use" && !is_punct(tokens.get(at + 1), '<') {
                    let line = ident.span().start().line;
                    let end = tokens[at..].iter().position(|token| is_punct(Some(token), ';')).unwrap_or(1);
                    tree(&tokens[at + 1..at + end], &[], inside, line, file);
                    at += end + 1;
                    continue;
                }
                let is_head = !follows_path(&tokens, at) && is_path(tokens.get(at + 1), tokens.get(at + 2));
                if is_head {
                    let line = ident.span().start().line;
                    let mut path = vec![word];
                    while is_path(tokens.get(at + 1), tokens.get(at + 2))
                        && let Some(name) = tokens.get(at + 3).and_then(word_of)
                    {
                        path.push(name);
                        at += 3;
                    }
                    file.named.push(Named { path, binding: None, inside: inside.clone(), line });
                } else if at_items && DEFINING.contains(&word.as_str()) {
                    let name = if word == "macro_rules" { tokens.get(at + 2).and_then(word_of) } else { next };
                    file.defined.extend(name.map(|name| (inside.clone(), name)));
                }
            }
            TokenTree::Group(group) => read(group.stream(), inside, false, file),
            TokenTree::Punct(_) | TokenTree::Literal(_) => {}
        }
        at += 1;
    }
}

/// Collects the paths of a `use` tree, whose prefix has been read already.
fn tree(tokens: &[TokenTree], prefix: &[String], inside: &Module, line: usize, file: &mut File) {
    let mut path = prefix.to_vec();
    let mut binding = None;
    let mut tokens = tokens.iter();
    while let Some(token) = tokens.next() {
        match token {
            TokenTree::Ident(ident) if ident == "as" => binding = tokens.next().and_then(word_of),
            TokenTree::Ident(ident) => path.push(ident.to_string()),
            TokenTree::Punct(punct) if punct.as_char() == '*' => path.push("*".to_owned()),
            TokenTree::Group(group) => {
                let group: Vec<TokenTree> = group.stream().into_iter().collect();
                for branch in group.split(|token| is_punct(Some(token), ',')).filter(|branch| !branch.is_empty()) {
                    let line = branch.first().map_or(line, |token| token.span().start().line);
                    tree(branch, &path, inside, line, file);
                }
                return;
            }
            TokenTree::Punct(_) | TokenTree::Literal(_) => {}
        }
    }
    if path.len() > 1 && path.last().is_some_and(|last| last == "self") {
        path.pop();
    }
    let binding = binding.or_else(|| path.last().cloned());
    file.named.push(Named { path, binding, inside: inside.clone(), line });
}

fn word_of(token: &TokenTree) -> Option<String> {
    if let TokenTree::Ident(ident) = token { Some(ident.to_string()) } else { None }
}

fn is_punct(token: Option<&TokenTree>, wanted: char) -> bool {
    matches!(token, Some(TokenTree::Punct(punct)) if punct.as_char() == wanted)
}

fn is_path(first: Option<&TokenTree>, second: Option<&TokenTree>) -> bool {
    is_punct(first, ':') && is_punct(second, ':')
}

/// True if the token continues a path, as after `a::`. A leading `::` begins a path.
fn follows_path(tokens: &[TokenTree], at: usize) -> bool {
    at >= 3
        && is_path(tokens.get(at - 2), tokens.get(at - 1))
        && (tokens.get(at - 3).and_then(word_of).is_some() || is_punct(tokens.get(at - 3), '>'))
}
