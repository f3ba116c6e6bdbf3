//! How much memory and time a document may take. Pure.

use std::time::Duration;

/// Address space of a child that reads no document, in bytes: the program itself, its stack, and what small documents compile to.
const MEMORY_BASE: u64 = 64 << 20;
/// Address space for each byte that the largest allowed document has. Measured: 2.0 for 50,000 identities, 2.6 where the document
/// is served as well.
const MEMORY_PER_BYTE: u64 = 3;
/// CPU time of a child that reads no document.
const CPU_BASE: Duration = Duration::from_secs(10);
/// CPU time for each MiB of the document, or part of one.
const CPU_PER_MIB: Duration = Duration::from_secs(1);
/// Time on the wall for each second of CPU time: where the node is busy, a child gets a share of a core.
const WALL_FACTOR: u32 = 4;

/// Bounds of one child.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Address space in bytes.
    pub memory: u64,
    /// CPU time. Whole seconds.
    pub cpu: Duration,
    /// From its start until it has ended.
    pub wall: Duration,
}

impl Bounds {
    /// The bounds for a document of so many bytes, where the largest may have `limit`.
    ///
    /// All documents may take the same memory, as only one is compiled at a time; time is by the document's own size, so that
    /// whoever may write no more than a ConfigMap holds nobody up for long.
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
