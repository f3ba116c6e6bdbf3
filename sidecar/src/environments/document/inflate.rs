//! Inflates a document through a window of fixed size.

use miniz_oxide::inflate::TINFLStatus;
use miniz_oxide::inflate::core::inflate_flags::TINFL_FLAG_HAS_MORE_INPUT;
use miniz_oxide::inflate::core::{DecompressorOxide, decompress};

use crate::volume::Region;

/// Size of the inflate window in bytes: the largest distance of a back-reference in deflate.
const WINDOW: usize = 32 * 1024;

/// Inflates a document in portions.
pub(super) struct Inflater {
    state: Box<DecompressorOxide>,
    window: Box<[u8]>,
    /// Offset in the window where the next portion begins.
    at: usize,
    /// Position in the document: number of files that are consumed, and number of bytes of the next file.
    file: usize,
    used: usize,
    done: bool,
}

impl std::fmt::Debug for Inflater {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Inflater").field("file", &self.file).field("used", &self.used).finish_non_exhaustive()
    }
}

impl Default for Inflater {
    fn default() -> Inflater {
        let window = vec![0; WINDOW].into_boxed_slice();
        Inflater { state: Box::default(), window, at: 0, file: 0, used: 0, done: false }
    }
}

impl Inflater {
    /// Returns the next portion. It is empty at the end, and `None` if the bytes are invalid.
    pub(super) fn next(&mut self, content: &remora_snapshot::Document<Region>) -> Option<&[u8]> {
        while !self.done {
            let source = content.deflated(self.file)?.get(self.used..)?;
            let more = self.file + 1 < content.files().len();
            let flags = if more { TINFL_FLAG_HAS_MORE_INPUT } else { 0 };
            let (status, read, written) = decompress(&mut self.state, source, &mut self.window, self.at, flags);
            self.used += read;
            match status {
                TINFLStatus::Done => self.done = true,
                TINFLStatus::HasMoreOutput => {}
                TINFLStatus::NeedsMoreInput if more => (self.file, self.used) = (self.file + 1, 0),
                _ => return None,
            }
            if written > 0 {
                let start = self.at;
                self.at = (start + written) % WINDOW;
                return self.window.get(start..start + written);
            }
        }
        Some(&[])
    }

    /// True if the whole document inflates to the length that it declares.
    pub(super) fn yields_all(mut self, content: &remora_snapshot::Document<Region>) -> bool {
        let mut length = 0;
        while let Some(portion) = self.next(content) {
            length += portion.len() as u64;
            if portion.is_empty() || length > content.length() {
                return length == content.length();
            }
        }
        false
    }
}
