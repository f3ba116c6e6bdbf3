//! Bounds on the memory and time that the compilation of a document may take. Pure.

use std::time::Duration;

/// Address space of a child without a document, in bytes: the program itself, its stack, and the output of small
/// documents.
const MEMORY_BASE: u64 = 64 << 20;
/// Address space per byte of the largest allowed document. Measured: 2.0 for 50,000 identities, 2.6 if the document is
/// served too.
const MEMORY_PER_BYTE: u64 = 3;
/// CPU time of a child without a document.
const CPU_BASE: Duration = Duration::from_secs(10);
/// CPU time for each MiB of the document. A part of a MiB counts as one.
const CPU_PER_MIB: Duration = Duration::from_secs(1);
/// Wall-clock time for each second of CPU time. On a busy node, a child gets only a share of a core.
const WALL_FACTOR: u32 = 4;

/// Bounds of one child process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Largest address space in bytes.
    pub memory: u64,
    /// Longest CPU time, in whole seconds.
    pub cpu: Duration,
    /// Longest wall-clock time from the start of the child to its end.
    pub wall: Duration,
}

impl Bounds {
    /// Computes the bounds for a document of `bytes` bytes, where the largest allowed document has `limit` bytes.
    ///
    /// All documents have the same memory bound, because only one is compiled at a time. The time bound depends on the
    /// size of the document, so that a user who may write only a ConfigMap does not delay others for long.
    #[must_use]
    pub fn of(bytes: usize, limit: usize) -> Self {
        let mib = u32::try_from(bytes.div_ceil(1 << 20)).unwrap_or(u32::MAX);
        let cpu = CPU_BASE.saturating_add(CPU_PER_MIB.saturating_mul(mib));
        let limit = u64::try_from(limit).unwrap_or(u64::MAX);
        Self {
            memory: MEMORY_BASE.saturating_add(MEMORY_PER_BYTE.saturating_mul(limit)),
            cpu,
            wall: cpu.saturating_mul(WALL_FACTOR),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_of_default_document_limit_leave_controller_its_share() {
        let bounds = Bounds::of(1 << 20, crate::source::fetch::DOCUMENT_MAX);
        assert_eq!(bounds.memory, 256 << 20);
        assert_eq!((bounds.cpu, bounds.wall), (Duration::from_secs(11), Duration::from_secs(44)));
    }

    #[test]
    fn bounds_of_any_size_do_not_overflow() {
        let bounds = Bounds::of(usize::MAX, usize::MAX);
        assert_eq!(bounds.memory, u64::MAX);
        assert!(bounds.wall >= bounds.cpu);
    }
}
