//! Validation of a core: the header, and in one linear pass everything that rows refer to.

use std::cell::Cell;

use crate::ReadError;
use crate::format::{
    header::{CORE_MAGIC_TEXT, Header, malformed, read_header, span_of},
    layout::{
        ACCEPT, AUTOMATON, BACKTRACKING, BLOCK, CONSTANT, CORE_MAGIC, CORE_START, FLAG, HAS_BIG_INTEGER, HEADER,
        IDENTIFIER, IDENTITY_KEY, NO_OFFSETS, NO_RANK, Operator, OverrideMask, OverrideRun, PLAIN, RANKS, REJECT, Rank,
        SAME_AS, SECTIONS, SLOTS,
    },
    overrides::Overrides,
    view::{View, section_entry, section_table},
};
use crate::regex::{automaton, backtrack};
use crate::values::{
    hash::{NO_MEMBER, NameKey},
    rows::{Row, Span, Table},
};

/// Validates a core file.
pub(crate) fn read_core(bytes: &[u8]) -> Result<Header, ReadError> {
    let header = read_header(bytes, CORE_MAGIC, CORE_MAGIC_TEXT, CORE_START)?;
    for number in 0..SECTIONS {
        span_of(bytes, section_entry(bytes, HEADER, number), number)?;
    }
    let section_table = section_table(bytes);
    let view = View::of(bytes, &section_table, header.fingerprint);
    let check = Validator { view: &view };
    check.texts()?;
    check.features()?;
    check.answers()?;
    check.segments()?;
    check.masks()?;
    check.code()?;
    check.operands()?;
    check.slots()?;
    if std::str::from_utf8(view.notes()).is_err() {
        return Err(malformed("notes", 0, "they are not UTF-8"));
    }
    if !view.overrides().is_empty() {
        Overrides::validate(view.overrides(), header.fingerprint)?;
    }
    Ok(header)
}

/// Number of rows or bytes available to ranges, so that work on all ranges is linear: where a table's rows refer to
/// ranges of another table, the ranges must not overlap.
struct Total(Cell<usize>);

impl Total {
    fn of(all: usize) -> Self {
        Self(Cell::new(all))
    }

    /// Counts one more range. Fails if the ranges exceed the total, which means that some overlap.
    fn take(&self, length: u32, problem: Problem) -> Result<(), Problem> {
        let left = self.0.get().checked_sub(length as usize);
        self.0.set(left.unwrap_or(0));
        refuse_if(left.is_none(), problem)
    }
}

/// The problem of a row.
type Problem = &'static str;

/// Returns the problem if the condition holds.
fn refuse_if(holds: bool, problem: Problem) -> Result<(), Problem> {
    if holds { Err(problem) } else { Ok(()) }
}

struct Validator<'a> {
    view: &'a View<'a>,
}

impl Validator<'_> {
    /// Checks every row of a table. `check` returns the problem of a row, if any.
    fn each<R: Row<N>, const N: usize>(
        &self,
        part: &'static str,
        table: Table<'_, R, N>,
        check: impl Fn(&Self, u32, R) -> Result<(), Problem>,
    ) -> Result<(), ReadError> {
        for (number, row) in (0_u32..).zip(table.iter()) {
            check(self, number, row).map_err(|problem| malformed(part, number as usize, problem))?;
        }
        Ok(())
    }

    /// Returns true if the span lies within the blob at character boundaries. The blob as a whole is checked for UTF-8
    /// once.
    fn is_text(&self, span: Span) -> bool {
        let is_boundary = |at: u32| self.view.blob.get(at as usize).is_none_or(|byte| byte & 0xc0 != 0x80);
        span.within(self.view.blob) && is_boundary(span.start) && is_boundary(span.start + span.length)
    }

    fn texts(&self) -> Result<(), ReadError> {
        if std::str::from_utf8(self.view.blob).is_err() {
            return Err(malformed("blob", 0, "it is not UTF-8"));
        }
        let origin = self.view.origin();
        let holds = self.is_text(origin.name) && self.is_text(origin.client_key);
        if holds { Ok(()) } else { Err(malformed("origin", 0, "its texts are outside or no UTF-8")) }
    }

    fn features(&self) -> Result<(), ReadError> {
        let view = self.view;
        let overrides = Total::of(view.segment_overrides().len());
        self.each("feature", view.features(), |check, _, row| {
            let texts = [row.name, row.flagsmith_head, row.ofrep_head, row.ofrep_tail];
            refuse_if(!texts.iter().all(|span| check.is_text(*span)), "a text is outside or no UTF-8")?;
            refuse_if(row.context as usize >= view.contexts().len(), "its default does not exist")?;
            refuse_if(
                !view.segment_overrides().has(row.overrides, row.overrides_length),
                "its overrides do not exist",
            )?;
            refuse_if(row.overrides_length as usize > RANKS, "it has more than 65534 overrides")?;
            overrides.take(row.overrides_length, "its range overlaps that of an earlier row")?;
            Ok(())
        })?;
        self.each("context", view.contexts(), |check, _, row| {
            refuse_if(!check.is_text(row.tail), "its value is outside or no UTF-8")?;
            refuse_if(row.split as usize > view.splits().len(), "its split does not exist")?;
            Ok(())
        })?;
        self.each("split", view.splits(), |check, _, row| {
            refuse_if(
                !check.is_text(row.seed) || !view.variants().has(row.variants, row.length),
                "its seed or its variants are outside",
            )
        })?;
        self.each("variant", view.variants(), |check, _, row| {
            refuse_if(
                ![row.value, row.key, row.weight].iter().all(|span| check.is_text(*span)),
                "a text is outside or no UTF-8",
            )
        })?;
        self.each("segment override", view.segment_overrides(), |_, _, row| {
            refuse_if(row.segment as usize >= view.segments().len(), "its segment does not exist")?;
            refuse_if(row.context as usize >= view.contexts().len(), "its context does not exist")?;
            Ok(())
        })?;
        self.each("feature id", view.feature_ids(), |_, _, row| {
            refuse_if(row.feature as usize >= view.features().len(), "its feature does not exist")
        })?;
        self.each("split feature", view.split_features(), |_, _, row| {
            refuse_if(row.word as usize >= view.features().len(), "it does not exist")
        })?;
        self.names("feature name", view.feature_names(), view.features().len(), |row| row.word)
    }

    /// Checks a hash table of names: its size is a power of two, and the targets of its rows, stored plus 1, exist.
    fn names<R: Row<N>, const N: usize>(
        &self,
        part: &'static str,
        table: Table<'_, R, N>,
        limit: usize,
        of: impl Fn(R) -> u32,
    ) -> Result<(), ReadError> {
        if !(table.len() == 0 && limit == 0 || table.len().is_power_of_two()) {
            return Err(malformed(part, 0, "its size is not a power of two"));
        }
        self.each(part, table, |_, _, row| refuse_if(of(row) as usize > limit, "it does not exist"))
    }

    fn answers(&self) -> Result<(), ReadError> {
        let view = self.view;
        if view.answers().len() != 4 {
            return Err(malformed("answer", view.answers().len(), "there are not four of them"));
        }
        self.each("answer", view.answers(), |check, _, row| {
            let count = view.features().len() as u32 + 1;
            if !check.is_text(row.body) || row.body.length < 2 || !view.bounds().has(row.bounds, count) {
                return Err("its body or its bounds are outside");
            }
            let mut last = 1;
            let ascending = view.bounds().range(row.bounds, count).iter().all(|bound| {
                let holds = last <= bound.word && bound.word < row.body.length;
                last = bound.word;
                holds
            });
            refuse_if(!ascending, "its bounds are out of order")
        })
    }

    fn segments(&self) -> Result<(), ReadError> {
        let view = self.view;
        let masks = Total::of(view.segment_masks().len());
        self.each("segment", view.segments(), |check, _, row| {
            refuse_if(!check.is_text(row.name), "its name is outside or no UTF-8")?;
            refuse_if(!check.is_place(row.entry), "its program does not exist")?;
            refuse_if(!view.segment_masks().has(row.masks.start, row.masks.length), "its masks do not exist")?;
            masks.take(row.masks.length, "its range of masks overlaps that of an earlier row")?;
            Ok(())
        })?;
        self.blocks()?;
        self.attribute_indexes()?;
        self.override_runs()
    }

    /// Checks the blocks of segments, and the rules that they refer to.
    fn blocks(&self) -> Result<(), ReadError> {
        let view = self.view;
        if view.blocks().len() != view.segments().len().div_ceil(BLOCK) {
            return Err(malformed("block", view.blocks().len(), "there is not one for each 64 segments"));
        }
        let attribute_indexes = Total::of(view.attribute_indexes().len());
        let modulo_rules = Total::of(view.modulo_rules().len());
        let percentage_rules = Total::of(view.percentage_rules().len());
        self.each("block", view.blocks(), |_, _, row| {
            refuse_if(
                !view.attribute_indexes().has(row.attribute_indexes.start, row.attribute_indexes.length),
                "its attribute indexes do not exist",
            )?;
            refuse_if(
                !view.modulo_rules().has(row.modulo_rules.start, row.modulo_rules.length),
                "its modulo rules do not exist",
            )?;
            refuse_if(
                !view.percentage_rules().has(row.percentage_rules.start, row.percentage_rules.length),
                "its percentage rules do not exist",
            )?;
            attribute_indexes
                .take(row.attribute_indexes.length, "its attribute indexes overlap those of an earlier row")?;
            modulo_rules.take(row.modulo_rules.length, "its modulo rules overlap those of an earlier row")?;
            percentage_rules
                .take(row.percentage_rules.length, "its percentage rules overlap those of an earlier row")?;
            Ok(())
        })?;
        self.each("modulo rule", view.modulo_rules(), |_, _, row| {
            refuse_if(row.slot as usize >= view.slots().len(), "its slot does not exist")
        })?;
        self.each("percentage rule", view.percentage_rules(), |check, _, row| {
            refuse_if(row.slot as usize >= view.slots().len(), "its slot does not exist")?;
            refuse_if(!check.is_text(row.seed), "its seed is outside or no UTF-8")?;
            Ok(())
        })
    }

    /// Checks the attribute indexes. Breakpoints of different ones must follow each other, and so must sets, so that checking
    /// all of them is linear.
    fn attribute_indexes(&self) -> Result<(), ReadError> {
        let view = self.view;
        let (end, last) = (Cell::new(0), Cell::new(0));
        self.each("attribute index", view.attribute_indexes(), |check, _, row| {
            let exists = |breakpoints: Span| {
                let follows =
                    breakpoints.start == end.get() && view.breakpoints().has(breakpoints.start, breakpoints.length);
                end.set(breakpoints.start.saturating_add(breakpoints.length));
                follows
            };
            let breakpoints = [row.texts, row.versions, row.integers, row.floats];
            let has_free = |sets: Span| {
                view.exact_matches().range(sets.start, sets.length).iter().any(|member| member.key == NO_MEMBER)
            };
            let texts = || view.breakpoints().range(row.texts.start, row.texts.length).iter();
            refuse_if(row.slot as usize >= view.slots().len(), "its slot does not exist")?;
            refuse_if(row.combined_dfa as usize > view.combined_dfas().len(), "its patterns do not exist")?;
            refuse_if(
                !breakpoints.into_iter().all(exists),
                "its breakpoints do not exist, or do not follow those of the row before",
            )?;
            refuse_if(
                last.replace(row.exact_matches.start.saturating_add(row.exact_matches.length))
                    != row.exact_matches.start
                    || !view.exact_matches().has(row.exact_matches.start, row.exact_matches.length),
                "its sets do not exist, or do not follow those of the row before",
            )?;
            refuse_if(
                row.exact_matches.length != 0
                    && !(row.exact_matches.length.is_power_of_two() && has_free(row.exact_matches)),
                "the size of its sets is not a power of two, or none of their rows is free",
            )?;
            refuse_if(
                !texts().all(|breakpoint| check.is_text(Span::from_word(breakpoint.point))),
                "a text is outside or no UTF-8",
            )?;
            Ok(())
        })
    }

    /// Checks the override runs. Ranks and offsets of different ones must follow each other.
    fn override_runs(&self) -> Result<(), ReadError> {
        let view = self.view;
        let (end, last) = (Cell::new(0), Cell::new(0));
        self.each("override run", view.override_runs(), |check, _, OverrideRun { feature, ranks, offsets }| {
            let follows = ranks.start == end.get() && view.ranks().has(ranks.start, ranks.length);
            end.set(ranks.start.saturating_add(ranks.length));
            if offsets != NO_OFFSETS {
                let count = ranks.length.saturating_add(1);
                let follows = offsets == last.get() && view.object_offsets().has(offsets, count);
                last.set(offsets.saturating_add(count));
                let mut starts =
                    view.object_offsets().range(offsets, count).iter().map(|object_offset| object_offset.at).peekable();
                let mut holds = follows;
                while let (true, Some(start), Some(end)) = (holds, starts.next(), starts.peek()) {
                    holds = end.checked_sub(start).is_some_and(|length| check.is_text(Span { start, length }));
                }
                if !holds {
                    return Err("its objects are outside, no UTF-8, or do not follow those of the row before");
                }
            }
            if !follows || !view.features().has(feature, ranks.length) {
                return Err(
                    "its ranks or its features do not exist, or its ranks do not follow those of the row before",
                );
            }
            let features = view.features().range(feature, ranks.length).iter();
            let mut both = view.ranks().range(ranks.start, ranks.length).iter().zip(features);
            let exist = both.all(|(Rank { rank }, row)| rank == NO_RANK || u32::from(rank) < row.overrides_length);
            refuse_if(!exist, "a rank does not exist")
        })
    }

    fn masks(&self) -> Result<(), ReadError> {
        let view = self.view;
        self.each("segment mask", view.segment_masks(), |_, _, row| {
            refuse_if(row.word as usize >= view.override_masks().len(), "it does not exist")
        })?;
        self.each("override mask", view.override_masks(), |_, _, OverrideMask { features, block, run }| {
            let Some(run) = view.override_runs().get(run) else { return Err("its run does not exist") };
            let start = u64::from(block) * BLOCK as u64;
            let first = start + u64::from(features.trailing_zeros());
            let last = start + u64::from(63_u32.saturating_sub(features.leading_zeros()));
            let end = u64::from(run.feature) + u64::from(run.ranks.length);
            refuse_if(first < u64::from(run.feature) || last >= end, "its features are not in its run")
        })
    }

    fn is_place(&self, place: u32) -> bool {
        place == ACCEPT || place == REJECT || (place as usize) < self.view.code().len()
    }

    fn code(&self) -> Result<(), ReadError> {
        let view = self.view;
        self.each("instruction", view.code(), |check, number, row| {
            let Some(operator) = Operator::from_number(row.operator) else { return Err("its operator is unknown") };
            let members = Span::from_word(row.left);
            let exists = match operator {
                Operator::In => view.members().has(members.start, members.length),
                Operator::Regex => (row.operand as usize) < view.patterns().len(),
                Operator::PercentageSplit => check.is_text(Span::from_word(row.right)),
                _ if row.flags & HAS_BIG_INTEGER != 0 => (row.operand as usize) < view.big_integers().len(),
                _ => true,
            };
            refuse_if(usize::from(row.slot) >= view.slots().len(), "its slot does not exist")?;
            refuse_if(!exists || !check.is_text(row.text), "what it compares with does not exist")?;
            refuse_if(
                ![row.on_true, row.on_false].iter().all(|next| check.is_place(*next) && *next > number),
                "it does not go forward",
            )?;
            Ok(())
        })
    }

    fn operands(&self) -> Result<(), ReadError> {
        let view = self.view;
        self.each("big integer", view.big_integers(), |check, _, row| {
            refuse_if(!check.is_text(row.digits), "its digits are outside or no UTF-8")
        })?;
        // Programs must follow each other, so that checking all of them is linear.
        let end = Cell::new(0);
        let follows = |program: Span| {
            let follows = program.within(view.programs()) && program.start >= end.get();
            end.set(program.start.saturating_add(program.length));
            follows
        };
        self.each("combined DFA", view.combined_dfas(), |_, _, row| {
            refuse_if(!follows(row.program), "its program is outside, or overlaps that of an earlier row")?;
            refuse_if(
                !view.accept_sets().has(row.accept_sets.start, row.accept_sets.length),
                "its accept sets do not exist",
            )?;
            refuse_if(
                !view.pattern_predicates().has(row.pattern_predicates.start, row.pattern_predicates.length),
                "its predicates do not exist",
            )?;
            automaton::validate(row.program.of(view.programs()))
        })?;
        self.each("pattern", view.patterns(), |_, _, row| {
            if !follows(row.program) {
                return Err("its program is outside, or overlaps that of an earlier row");
            }
            let program = row.program.of(view.programs());
            match row.kind {
                AUTOMATON => automaton::validate(program),
                BACKTRACKING => backtrack::validate(program),
                _ => Err("its kind is unknown"),
            }
        })
    }

    fn slots(&self) -> Result<(), ReadError> {
        let view = self.view;
        self.each("slot", view.slots(), |check, number, row| {
            let argument_exists = match row.derivation {
                PLAIN | IDENTIFIER | IDENTITY_KEY => true,
                SAME_AS => row.argument < number,
                CONSTANT => (row.argument as usize) < view.literals().len(),
                FLAG => ((row.argument & 0x00ff_ffff) as usize) < view.features().len(),
                _ => false,
            };
            refuse_if(!check.is_text(row.name), "its name is outside or no UTF-8")?;
            refuse_if(number as usize >= SLOTS, "there are more than 65535")?;
            refuse_if(!argument_exists, "what it is derived from does not exist")?;
            Ok(())
        })?;
        let next = Cell::new(0);
        self.each("derived slot", view.derived(), |_, _, row| {
            refuse_if(row.word as usize >= view.slots().len(), "it does not exist")?;
            refuse_if(next.replace(row.word + 1) > row.word, "it is not behind the one before")?;
            Ok(())
        })?;
        self.each("literal", view.literals(), |check, _, row| {
            refuse_if(!check.is_text(row.token), "its token is outside or no UTF-8")
        })?;
        self.names("trait name", view.trait_names(), view.slots().len(), |row| row.slot)?;
        // Names must be distinct, and each must be in the blob once. Otherwise reading all of them is not linear.
        let names = Total::of(view.blob.len());
        self.each("trait name", view.trait_names(), |_, _, row| {
            let Some(slot) = row.slot.checked_sub(1).and_then(|slot| view.slots().get(slot)) else { return Ok(()) };
            names.take(slot.name.length, "its name overlaps that of an earlier row")?;
            refuse_if(row.name_key() != NameKey::of(view.bytes(slot.name)), "its numbers are not those of its name")?;
            Ok(())
        })
    }
}
