//! Files in memory, one after another, in one mapping that cannot be written.

use std::fs::File;
use std::io;

use memmap2::{Mmap, MmapMut, MmapOptions};
use rustix::fs::{MemfdFlags, SealFlags};
use rustix::mm::{MapFlags, ProtFlags};

/// A file, and the number of its bytes that are loaded.
#[derive(Debug)]
pub(super) struct Source {
    pub(super) file: File,
    pub(super) length: usize,
}

/// Maps the files of a kubelet volume beside each other without copying them. Each but the last must have a multiple of
/// the page size.
pub(super) fn map_in_place(sources: &[Source]) -> io::Result<Mmap> {
    let total = sources.iter().map(|source| source.length).sum();
    let mut reserved = MmapOptions::new().len(total).map_anon()?;
    let mut offset = 0;
    for source in sources {
        if let Err(error) = map_over(&mut reserved, offset, source) {
            // A failed call may have unmapped the place, and another thread may use the addresses already.
            std::mem::forget(reserved);
            return Err(error);
        }
        offset += source.length;
    }
    reserved.make_read_only()
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

/// Copies files into sealed memory, which cannot change any more, and maps that.
pub(super) fn copy(sources: &[Source]) -> io::Result<Mmap> {
    use io::Read as _;

    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let mut memory = File::from(rustix::fs::memfd_create("remora", flags)?);
    for source in sources {
        let length = source.length as u64;
        if io::copy(&mut (&source.file).take(length), &mut memory)? < length {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the file became shorter while it was read"));
        }
    }
    let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE | SealFlags::SEAL;
    rustix::fs::fcntl_add_seals(&memory, seals)?;
    Ok(MmapOptions::new().map_if_safe(&memory)?)
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    const PAGES: usize = 1 << 16;

    /// Creates files without names. The number of the file is in all of its bytes.
    fn sources(lengths: &[usize]) -> Vec<Source> {
        let one = |(number, length): (usize, &usize)| {
            let mut file = File::from(rustix::fs::memfd_create("test", MemfdFlags::CLOEXEC).unwrap());
            file.write_all(&vec![number as u8 + 1; *length]).unwrap();
            std::io::Seek::rewind(&mut file).unwrap();
            Source { file, length: *length }
        };
        lengths.iter().enumerate().map(one).collect()
    }

    #[test]
    fn files_lie_beside_each_other_in_place_and_copied() {
        for lengths in [&[1][..], &[PAGES], &[PAGES, 1], &[PAGES, 3 * PAGES, 2 * PAGES, 70]] {
            let expected: Vec<u8> = (1..).zip(lengths).flat_map(|(number, length)| vec![number; *length]).collect();
            let sources = sources(lengths);
            for map in [map_in_place(&sources).unwrap(), copy(&sources).unwrap()] {
                assert_eq!(map.len(), expected.len());
                assert!(map[..] == expected, "{lengths:?}");
            }
        }
    }

    #[test]
    fn file_outside_of_page_boundary_is_refused() {
        assert!(map_in_place(&sources(&[PAGES + 1, PAGES])).is_err());
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
        assert_eq!(copy(&sources).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    }
}
