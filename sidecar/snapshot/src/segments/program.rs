//! Residual programs: the conditions of a segment that the index does not evaluate.

use super::{Flags, Scratch, Segments, condition};
use crate::budget::Undecided;
use crate::context::{EvaluationContext, Value};
use crate::format::layout::{ACCEPT, Instruction, READS_FLAG, REJECT};
use crate::values::rows::Row as _;

impl Segments<'_> {
    /// Runs a segment's residual program. Returns true if the program accepts the context.
    ///
    /// An undecided program accepts nothing, even if it negates a condition.
    ///
    /// The program ends because every jump goes forward. This is checked here again, so that termination does not
    /// depend on the reader's validation alone.
    pub(super) fn accepts(
        &self,
        context: &mut EvaluationContext,
        scratch: &mut Scratch,
        flags: &mut impl Flags,
        entry: u32,
    ) -> bool {
        if entry == ACCEPT {
            return true; // the index decides most segments completely
        }
        let code = self.view.code();
        let mut at = entry;
        while let Some(stored) = code.stored(at) {
            let instruction = Instruction::decode(stored);
            let mut value = context.value(instruction.slot);
            if instruction.flags & READS_FLAG != 0 && value == Value::Null {
                value = flags.read(context, scratch, instruction.slot);
            }
            let holds = condition::holds(self, context, scratch, stored, value);
            let next = if holds { instruction.on_true } else { instruction.on_false };
            if !self.budget.spend(1) || self.budget.was_interrupted() {
                self.budget.note(Undecided::Program(entry));
                return false;
            }
            if next <= at {
                return false;
            }
            at = next;
        }
        debug_assert!(at == ACCEPT || at == REJECT, "a program ends at its end");
        at == ACCEPT
    }
}
