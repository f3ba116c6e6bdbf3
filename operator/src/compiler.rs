//! Compiles documents in child processes, which can be killed.
//!
//! Any user who may edit flags controls the content of a document, and no other user's environment should depend on it.
//! So the operator's process never parses a document: it sends the bytes to a child, which parses, prunes and compiles
//! them and returns files.
//!
//! ```text
//! controller                                child (this program: remora-operator compile-process)
//! Compiler::compile ── stdin: task, pages ──> sets its own limits, parses, prunes, compiles
//!                   <── stdout: places, answer, files ──
//! ```
//!
//! The child is single-threaded and has no environment variables. It has three file descriptors and may open no more; a
//! filter of the kernel lets it make no other system calls than those on these and on its own memory.
//! Its address space and CPU time are bounded ([`Bounds`]). The parent bounds the wall-clock time and the bytes that it
//! reads. One child runs at a time, so the memory of parent and child stays below a known sum. Namespaces take turns
//! ([`FairSemaphore`]).

mod bounds;
mod child;
mod confine;
mod error;
mod frame;
mod message;
mod process;
mod redact;
mod work;

use std::{fmt, path::PathBuf};

use self::message::ChildAnswer;
pub(crate) use self::work::rules;
pub use self::{
    bounds::Bounds,
    child::Child,
    error::{Error, RefusalKind},
    message::{Response, Task},
};
use crate::fair_semaphore::FairSemaphore;
pub use remora_compile::about::DocumentStats;
use remora_compile::document::printable;

/// Number of children at one time. The chart's memory limit includes the memory of this many.
const CHILDREN_MAX: usize = 1;

/// Path of this program's executable, which stays valid after the file is replaced.
const THIS_PROGRAM: &str = "/proc/self/exe";

/// Document to compile, and the parameters of the compilation.
#[derive(Debug)]
pub struct Request {
    /// Parameters of the compilation.
    pub task: Task,
    /// Bytes of the document, page by page.
    pub pages: Vec<Vec<u8>>,
}

/// Function that compiles a request in this process.
pub type Function = dyn Fn(Request) -> Result<Response, Error> + Send + Sync;

/// Compiler that runs each compilation in a child process.
#[derive(Debug)]
pub struct Compiler {
    worker: Worker,
    permits: FairSemaphore,
}

/// Way in which a request is compiled.
enum Worker {
    /// In a child process that runs `program`.
    Child { program: PathBuf, document_limit: usize },
    /// In this process.
    Function(Box<Function>),
}

impl fmt::Debug for Worker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Child { program, .. } => write!(f, "child process {}", program.display()),
            Self::Function(_) => f.write_str("function"),
        }
    }
}

impl Compiler {
    /// Creates a compiler that runs this program again as the child. `document_limit` is the size of the largest
    /// document in bytes.
    #[must_use]
    pub fn new(document_limit: usize) -> Self {
        Self::with_program(THIS_PROGRAM, document_limit)
    }

    /// Creates a compiler that runs `program compile-process …` as the child.
    #[must_use]
    pub fn with_program(program: impl Into<PathBuf>, document_limit: usize) -> Self {
        let worker = Worker::Child { program: program.into(), document_limit };
        Self { worker, permits: FairSemaphore::new(CHILDREN_MAX) }
    }

    /// Creates a compiler that calls `function`. Simulations use it, in which no real time passes and every document is
    /// trusted: nothing bounds the function.
    #[must_use]
    pub fn with_function(function: Box<Function>) -> Self {
        Self { worker: Worker::Function(function), permits: FairSemaphore::new(CHILDREN_MAX) }
    }

    /// Compiles a document of `namespace`. Waits for the namespace's turn.
    ///
    /// # Errors
    /// If the document is malformed or cannot be compiled, or if the child cannot be started, exceeds a bound, or
    /// crashes.
    pub async fn compile(&self, namespace: &str, request: Request) -> Result<Response, Error> {
        let _permit = self.permits.acquire(namespace).await;
        let (program, document_limit) = match &self.worker {
            Worker::Child { program, document_limit } => (program, *document_limit),
            Worker::Function(function) => return function(request),
        };
        let bytes = request.pages.iter().map(Vec::len).sum();
        let bounds = Bounds::of(bytes, document_limit);
        match process::run(program, &bounds, request).await? {
            (ChildAnswer::Compiled(contents), files) => Ok(Response::new(*contents, files)),
            (ChildAnswer::Malformed(problem), _) => Err(Error::Malformed(printable(&problem, message::SHOWN))),
            (ChildAnswer::ChangedBetweenPages, _) => Err(Error::ChangedBetweenPages),
            (ChildAnswer::Refused { kind, problem }, _) => {
                Err(Error::Refused { kind, problem: printable(&problem, message::SHOWN) })
            }
        }
    }
}
