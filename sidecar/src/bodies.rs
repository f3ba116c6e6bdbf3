//! Answers bodies without a server, for a bench that counts instructions.

use remora_snapshot::{Role, Snapshot};

use crate::dialects::scratch::Scratch;
use crate::dialects::{identities, ofrep};

/// The path of a body from its bytes to the answer, with the memory that a thread keeps between requests.
#[derive(Default)]
pub struct Bodies(Scratch);

impl Bodies {
    /// Appends the answer to a body of `identities/`. False if the body is refused.
    pub fn identities<B: AsRef<[u8]>>(&mut self, body: &[u8], snapshot: &Snapshot<B>, out: &mut Vec<u8>) -> bool {
        identities::answer_body(body, snapshot, Role::Client, &mut self.0, out).is_ok()
    }

    /// Appends the flags for a body of OFREP, whose answer has an entity tag. False if the body is refused.
    pub fn ofrep<B: AsRef<[u8]>>(&mut self, body: &[u8], snapshot: &Snapshot<B>, out: &mut Vec<u8>) -> bool {
        let is_read = ofrep::read(body, snapshot, &mut self.0, ofrep::EntityTag::Wanted).is_ok();
        if is_read {
            snapshot.write_ofrep_flags(&mut self.0.request, Role::Client, out);
        }
        is_read
    }
}
