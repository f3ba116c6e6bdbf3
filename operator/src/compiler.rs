//! Compiles documents in processes of their own, which can be killed.
//!
//! A document is data of somebody who may edit flags, and nobody else's process should depend on it. So nothing in this process
//! looks into a document: its bytes go to a child, which reads, prunes and compiles them, and files come back.
//!
//! ```text
//! controller                                child (this program: remora-operator compile-process)
//! Compiler::compile ── stdin: task, pages ──> sets its own limits, parses, prunes, compiles
//!                   <── stdout: places, answer, files ──
//! ```
//!
//! The child is single-threaded, has no environment variables, no descriptors but the three, may open none, and is bounded in
//! address space and CPU time ([`Bounds`]). The parent bounds the time on the wall and what it reads. One child runs at a time,
//! so that the memory of both stays below a known sum, and namespaces take turns.

mod bounds;
mod child;
mod error;
mod frame;
mod message;
mod process;
mod redact;
mod turns;
mod work;

use std::path::PathBuf;

pub(crate) use self::work::rules;
pub use self::{
    bounds::Bounds,
    child::Child,
    error::{Error, Refusal},
    message::{Response, Task},
};
use self::{message::Answer, turns::Turns};
pub use super::compile::about::About;

/// This program, also after its file was replaced.
const THIS_PROGRAM: &str = "/proc/self/exe";

/// What to compile.
#[derive(Debug)]
pub struct Request {
    /// Everything but the document.
    pub task: Task,
    /// The bytes of the document, page by page.
    pub pages: Vec<Vec<u8>>,
}

/// Compiles documents, each in a process of its own.
#[derive(Debug)]
pub struct Compiler {
    program: PathBuf,
    document_limit: usize,
    turns: Turns,
}

impl Compiler {
    /// A compiler that runs this program again; documents have at most `document_limit` bytes.
    #[must_use]
    pub fn new(document_limit: usize) -> Self {
        Self::with_program(THIS_PROGRAM, document_limit)
    }

    /// A compiler that runs `program compile-process …`.
    #[must_use]
    pub fn with_program(program: impl Into<PathBuf>, document_limit: usize) -> Self {
        Self { program: program.into(), document_limit, turns: Turns::default() }
    }

    /// Compiles a document of `namespace`, when it is the turn of that namespace.
    ///
    /// # Errors
    /// If the document cannot be read or compiled, or its process did not end well.
    pub async fn compile(&self, namespace: &str, request: Request) -> Result<Response, Error> {
        let _turn = self.turns.enter(namespace).await;
        let bytes = request.pages.iter().map(Vec::len).sum();
        let bounds = Bounds::of(bytes, self.document_limit);
        match process::run(&self.program, &bounds, request).await? {
            (Answer::Compiled(contents), files) => Ok(Response::new(*contents, files)),
            (Answer::Malformed(problem), _) => Err(Error::Malformed(message::shown(&problem))),
            (Answer::ChangedBetweenPages, _) => Err(Error::ChangedBetweenPages),
            (Answer::Refused { kind, problem }, _) => Err(Error::Refused { kind, problem: message::shown(&problem) }),
        }
    }
}
