//! Files in memory, one after another, in one mapping that cannot be written.

use std::fs::File;
use std::io;

use memmap2::{MmapMut, MmapOptions};
use rustix::mm::{MapFlags, ProtFlags};

use super::sealed::Unsealed;
use super::{MapError, Region};

/// A file with its name in the volume, and the number of its bytes that are loaded.
#[derive(Debug)]
pub(super) struct Source {
    pub(super) name: String,
    pub(super) file: File,
    pub(super) length: usize,
}

/// Maps the files of a kubelet volume beside each other without copying them. Each but the last must have a multiple of
/// the page size.
///
/// # Errors
/// A file cannot be mapped, or the system refuses the memory.
pub(super) fn map_in_place(sources: &[Source]) -> Result<Region, MapError> {
    let total = sources.iter().map(|source| source.length).sum();
    let mut reserved = MmapOptions::new().len(total).map_anon().map_err(MapError::Memory)?;
    let mut offset = 0;
    for source in sources {
        if let Err(cause) = map_over(&mut reserved, offset, source) {
            // A failed call may have unmapped the place, and another thread may use the addresses already.
            std::mem::forget(reserved);
            return Err(source.failed(cause));
        }
        offset += source.length;
    }
    reserved.make_read_only().map(Region::from).map_err(MapError::Memory)
}

/// Replaces memory of a reservation by a mapping of a file.
#[expect(unsafe_code, reason = "the one place where files are mapped that the kernel does not prove immutable")]
fn map_over(reserved: &mut MmapMut, offset: usize, source: &Source) -> io::Result<()> {
    if offset.checked_add(source.length).is_none_or(|end| end > reserved.len()) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let place = reserved.as_mut_ptr().wrapping_add(offset);
    // SAFETY: two things could be unsound here.
    //
    // The new mapping replaces what is at `place`. All of it belongs to `reserved`, an anonymous mapping that is
    // borrowed exclusively: the check above says so for the file's bytes, and the rest of the last page, which the
    // kernel replaces too, is part of the same mapping, because mappings consist of whole pages. The kernel refuses a
    // `place` that does not begin a page. No reference into `reserved` outlives this call's borrow, and the memory
    // stays mapped and readable. Nothing is written to it from here on, though its type would allow that: the only
    // caller returns it read-only. `reserved` unmaps the whole range at its end, the new mapping included. If the call
    // fails, nobody unmaps the range.
    //
    // A mapping is unsound if the file behind it is written or truncated while it is mapped. This function is only
    // called in a container that kubelet started, for files behind kubelet's `..data` link, on a mount that is
    // read-only for this container. Kubelet's writer never touches a file after the link refers to its directory: an
    // update goes to a new directory, the link is renamed, and the old files are unlinked, which keeps their bytes for
    // existing mappings. No process of this container can write there, because the mount is read-only, and every other
    // container gets the volume read-only, too. Root on the node can write there, and can do anything else to this
    // process as well; the reader checks every offset all the same.
    let mapped = unsafe {
        let flags = MapFlags::SHARED | MapFlags::FIXED;
        rustix::mm::mmap(place.cast(), source.length, ProtFlags::READ, flags, &source.file, 0)
    };
    mapped?;
    Ok(())
}

/// Copies files into sealed memory and maps that.
///
/// # Errors
/// A file cannot be copied as a whole, or the system refuses the memory.
pub(super) fn copy(sources: &[Source]) -> Result<Region, MapError> {
    use io::Read as _;

    let mut memory = Unsealed::new("remora").map_err(MapError::Memory)?;
    for source in sources {
        let length = source.length as u64;
        let copied = io::copy(&mut (&source.file).take(length), memory.file()).map_err(|cause| source.failed(cause))?;
        if copied < length {
            let cause = io::Error::new(io::ErrorKind::UnexpectedEof, "the file became shorter while it was read");
            return Err(source.failed(cause));
        }
    }
    memory.seal().map_err(MapError::Memory)
}

impl Source {
    /// Returns the error that names this file.
    fn failed(&self, cause: io::Error) -> MapError {
        MapError::Read { name: self.name.clone(), cause }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use rustix::fs::MemfdFlags;

    use super::*;

    const PAGES: usize = 1 << 16;

    /// Creates files without names. The number of the file is in all of its bytes.
    fn sources(lengths: &[usize]) -> Vec<Source> {
        let one = |(number, length): (usize, &usize)| {
            let mut file = File::from(rustix::fs::memfd_create("test", MemfdFlags::CLOEXEC).unwrap());
            file.write_all(&vec![number as u8 + 1; *length]).unwrap();
            std::io::Seek::rewind(&mut file).unwrap();
            Source { name: format!("core-a-{number:02}"), file, length: *length }
        };
        lengths.iter().enumerate().map(one).collect()
    }

    #[test]
    fn files_lie_beside_each_other_in_place_and_copied() {
        for lengths in [&[1][..], &[PAGES], &[PAGES, 1], &[PAGES, 3 * PAGES, 2 * PAGES, 70]] {
            let expected: Vec<u8> = (1..).zip(lengths).flat_map(|(number, length)| vec![number; *length]).collect();
            let sources = sources(lengths);
            for map in [map_in_place(&sources).unwrap(), copy(&sources).unwrap()] {
                assert_eq!(map.as_ref().len(), expected.len());
                assert!(map.as_ref() == expected, "{lengths:?}");
            }
        }
    }

    fn named(result: Result<Region, MapError>) -> (String, io::ErrorKind) {
        match result.unwrap_err() {
            MapError::Read { name, cause } => (name, cause.kind()),
            other => panic!("{other}"),
        }
    }

    #[test]
    fn file_outside_of_page_boundary_is_refused() {
        let refused = map_in_place(&sources(&[PAGES + 1, PAGES]));
        assert_eq!(named(refused), ("core-a-01".to_owned(), io::ErrorKind::InvalidInput));
    }

    #[test]
    fn file_that_cannot_be_mapped_is_named() {
        let mut sources = sources(&[PAGES, PAGES, PAGES]);
        // The kernel maps only files that are open for reading.
        sources[2].file = File::options().write(true).open("/dev/null").unwrap();
        let (name, _) = named(map_in_place(&sources));
        assert_eq!(name, "core-a-02");
        assert_eq!(named(copy(&sources)).0, "core-a-02");
    }

    #[test]
    fn file_beyond_the_reservation_is_refused() {
        let mut reserved = MmapOptions::new().len(PAGES).map_anon().unwrap();
        let [one] = sources(&[PAGES]).try_into().unwrap();
        for offset in [1, PAGES, usize::MAX] {
            assert_eq!(map_over(&mut reserved, offset, &one).unwrap_err().kind(), io::ErrorKind::InvalidInput);
        }
    }

    #[test]
    fn file_that_became_shorter_is_refused_by_the_copy() {
        let sources = sources(&[PAGES, PAGES]);
        sources[1].file.set_len(10).unwrap();
        assert_eq!(named(copy(&sources)), ("core-a-01".to_owned(), io::ErrorKind::UnexpectedEof));
    }
}
