//! Memory that is filled once and then sealed, so that its mapping cannot change.

use std::fs::File;
use std::io::{self, Write};

use memmap2::MmapOptions;
use rustix::fs::{MemfdFlags, SealFlags};

use super::Region;

/// Memory that is not sealed yet.
#[derive(Debug)]
pub(crate) struct Unsealed(File);

impl Unsealed {
    /// Creates empty memory. The kernel shows its name in `/proc/PID/maps`.
    ///
    /// # Errors
    /// The system refuses further files or memory.
    pub(crate) fn new(name: &str) -> io::Result<Unsealed> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        Ok(Unsealed(File::from(rustix::fs::memfd_create(name, flags)?)))
    }

    /// Returns the memory as a file, for copies within the kernel.
    pub(super) fn file(&mut self) -> &mut File {
        &mut self.0
    }

    /// Seals the memory and maps it.
    ///
    /// # Errors
    /// The system refuses the seals or the mapping.
    pub(crate) fn seal(self) -> io::Result<Region> {
        let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE | SealFlags::SEAL;
        rustix::fs::fcntl_add_seals(&self.0, seals)?;
        Ok(Region::from(MmapOptions::new().map_if_safe(&self.0)?))
    }
}

impl Write for Unsealed {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}
