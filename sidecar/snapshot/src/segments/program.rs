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
    pub(super) fn accepts(
        &self,
        context: &mut EvaluationContext,
        scratch: &mut Scratch,
        flags: &mut impl Flags,
        entry: u32,
    ) -> bool {
        // The index decides most segments completely.
        entry == ACCEPT || self.run(context, scratch, flags, entry, |_, _, _, _, _| ())
    }

    /// Runs a program, and passes each instruction, the value of its slot and its result to `observe`. Inlined, so that
    /// an evaluation, which observes nothing, does no work for it.
    #[inline(always)]
    pub(super) fn run(
        &self,
        context: &mut EvaluationContext,
        scratch: &mut Scratch,
        flags: &mut impl Flags,
        entry: u32,
        mut observe: impl FnMut(&EvaluationContext, &mut Scratch, &Instruction, Value, bool),
    ) -> bool {
        let code = self.view.code();
        let mut at = entry;
        while let Some(stored) = code.stored(at) {
            let instruction = Instruction::decode(stored);
            let mut value = context.value(instruction.slot);
            if instruction.flags & READS_FLAG != 0 && value == Value::Null {
                value = flags.read(context, scratch, instruction.slot);
            }
            let holds = condition::holds(self, context, scratch, stored, value);
            observe(context, scratch, &instruction, value, holds);
            let next = if holds { instruction.on_true } else { instruction.on_false };
            if !self.budget.spend(1) || self.budget.was_interrupted() {
                self.budget.note(Undecided::Program(entry));
                return false;
            }
            // Every jump goes forward, so that the program ends. The reader has checked this; the second check makes sure
            // that a fault of the reader cannot become a loop without end.
            if next <= at {
                return false;
            }
            at = next;
        }
        debug_assert!(at == ACCEPT || at == REJECT, "a program ends at its end");
        at == ACCEPT
    }
}
