//! Minimizes an automaton (Hopcroft's algorithm: n log n steps, all counted).

use super::determinize::Table;
use super::step_budget::StepBudget;

/// Returns the smallest table that accepts the same texts. `None` if the budget has too few steps.
pub(super) fn minimize(table: &Table, budget: &mut StepBudget) -> Option<Table> {
    let (states, width) = (table.states(), table.width);
    budget.take(table.next.len()).ok()?;
    let predecessors = Predecessors::of(table);
    let mut blocks = Blocks::new(states);
    let last = u32::try_from(states.checked_sub(1)?).ok()?;
    blocks.mark(last);
    let mut waiting: Vec<u32> = Vec::new();
    let mut is_waiting = vec![false; states + 1];
    if let Some((old, new)) = blocks.split(0) {
        for block in [old, new] {
            waiting.push(block);
            *is_waiting.get_mut(block as usize)? = true;
        }
    }
    while let Some(block) = waiting.pop() {
        *is_waiting.get_mut(block as usize)? = false;
        // The loop may split the block, so its members are copied.
        let members: Vec<u32> = blocks.members(block).to_vec();
        budget.take(members.len() * width).ok()?;
        for class in 0..width {
            let mut touched: Vec<u32> = Vec::new();
            for member in &members {
                let sources = predecessors.of_state(class, *member);
                budget.take(sources.len()).ok()?;
                for source in sources {
                    let of = blocks.block_of(*source);
                    if blocks.mark(*source) == 1 {
                        touched.push(of);
                    }
                }
            }
            for of in touched {
                let Some((old, new)) = blocks.split(of) else { continue };
                let smaller = if blocks.members(old).len() <= blocks.members(new).len() { old } else { new };
                let added = if *is_waiting.get(old as usize)? { new } else { smaller };
                waiting.push(added);
                *is_waiting.get_mut(added as usize)? = true;
            }
        }
    }
    quotient(table, &blocks, last)
}

/// Returns the table with one state per block: the dead state first, then the blocks by their first member, and the
/// matching state last.
fn quotient(table: &Table, blocks: &Blocks, last: u32) -> Option<Table> {
    let unknown = u32::MAX;
    let mut numbers = vec![unknown; blocks.bounds.len()];
    let mut chosen = Vec::new();
    let accepting = blocks.block_of(last);
    for state in 0..last {
        let block = blocks.block_of(state);
        let number = numbers.get_mut(block as usize)?;
        if *number == unknown && block != accepting {
            *number = u32::try_from(chosen.len()).ok()?;
            chosen.push(state);
        }
    }
    *numbers.get_mut(accepting as usize)? = u32::try_from(chosen.len()).ok()?;
    chosen.push(last);
    let number = |state: u32| numbers.get(blocks.block_of(state) as usize).copied();
    let mut next = Vec::with_capacity(chosen.len() * table.width);
    for state in &chosen {
        let start = *state as usize * table.width;
        for state in table.next.get(start..start + table.width)? {
            next.push(number(*state)?);
        }
    }
    Some(Table { classes: table.classes, width: table.width, start: number(table.start)?, next })
}

/// Predecessors of each state, by class.
struct Predecessors {
    /// Start of the predecessors of each class and state in `sources`, and one entry for the end.
    starts: Vec<u32>,
    sources: Vec<u32>,
    states: usize,
}

impl Predecessors {
    fn of(table: &Table) -> Self {
        let states = table.states();
        let entries = || {
            let rows = table.next.chunks_exact(table.width).zip(0_u32..);
            rows.flat_map(|(row, source)| row.iter().enumerate().map(move |(class, next)| (class, *next, source)))
        };
        let mut starts = vec![0_u32; states * table.width + 1];
        for (class, next, _) in entries() {
            if let Some(count) = starts.get_mut(class * states + next as usize + 1) {
                *count += 1;
            }
        }
        let mut sum = 0;
        for start in &mut starts {
            sum += *start;
            *start = sum;
        }
        let mut places = starts.clone();
        let mut sources = vec![0; table.next.len()];
        for (class, next, source) in entries() {
            if let Some(place) = places.get_mut(class * states + next as usize) {
                if let Some(slot) = sources.get_mut(*place as usize) {
                    *slot = source;
                }
                *place += 1;
            }
        }
        Self { starts, sources, states }
    }

    fn of_state(&self, class: usize, state: u32) -> &[u32] {
        let at = class * self.states + state as usize;
        match (self.starts.get(at), self.starts.get(at + 1)) {
            (Some(start), Some(end)) => self.sources.get(*start as usize..*end as usize).unwrap_or_default(),
            _ => &[],
        }
    }
}

/// Partition of the states.
struct Blocks {
    /// States, ordered by block. Marked states come first in their block.
    order: Vec<u32>,
    /// Position in `order`, by state.
    places: Vec<u32>,
    /// Block, by state.
    blocks: Vec<u32>,
    /// Start in `order`, number of members, and number of marked members, by block.
    bounds: Vec<(u32, u32, u32)>,
}

impl Blocks {
    /// Creates a partition of one block.
    fn new(states: usize) -> Self {
        let order: Vec<u32> = (0..states as u32).collect(); // a table has at most ENTRIES_MAX entries
        Self { places: order.clone(), blocks: vec![0; states], bounds: vec![(0, states as u32, 0)], order }
    }

    fn block_of(&self, state: u32) -> u32 {
        self.blocks.get(state as usize).copied().unwrap_or_default()
    }

    fn members(&self, block: u32) -> &[u32] {
        let (start, count, _) = self.bounds.get(block as usize).copied().unwrap_or_default();
        self.order.get(start as usize..(start + count) as usize).unwrap_or_default()
    }

    /// Marks a state and returns the number of marked states in its block. Returns 0 if the state was marked before.
    fn mark(&mut self, state: u32) -> u32 {
        let block = self.block_of(state) as usize;
        let Some((start, _, marked)) = self.bounds.get_mut(block) else { return 0 };
        let Some(place) = self.places.get(state as usize).copied() else { return 0 };
        let first = *start + *marked;
        if place < first {
            return 0;
        }
        *marked += 1;
        let marked = *marked;
        self.order.swap(place as usize, first as usize);
        for at in [place, first] {
            if let Some(state) = self.order.get(at as usize).copied()
                && let Some(place) = self.places.get_mut(state as usize)
            {
                *place = at;
            }
        }
        marked
    }

    /// Moves the marked members into a new block and clears all marks of the block. Returns the old and the new block.
    /// `None` if no member or every member was marked.
    fn split(&mut self, block: u32) -> Option<(u32, u32)> {
        let new = self.bounds.len() as u32;
        let (start, count, marked) = self.bounds.get_mut(block as usize)?;
        let own = (*start, *marked, 0);
        let is_divided = *marked < *count && *marked > 0;
        let moved = *marked;
        *marked = 0;
        if !is_divided {
            return None;
        }
        (*start, *count) = (*start + moved, *count - moved);
        self.bounds.push(own);
        for at in own.0..own.0 + own.1 {
            if let Some(state) = self.order.get(at as usize).copied()
                && let Some(block) = self.blocks.get_mut(state as usize)
            {
                *block = new;
            }
        }
        Some((block, new))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Creates a table with three classes: byte 0, all other bytes, and the end of the text.
    fn table(next: &[[u32; 3]]) -> Table {
        let mut classes = [1; 256];
        classes[0] = 0;
        Table { classes, width: 3, start: 1, next: next.concat() }
    }

    #[test]
    fn equivalent_states_are_merged() {
        // States 1 and 2 form one loop, and state 4 is equivalent to the dead state.
        let rows = [[0, 0, 0], [2, 5, 0], [1, 5, 4], [4, 5, 4], [0, 4, 0], [5; 3]];
        let small = minimize(&table(&rows), &mut StepBudget::new(1_000_000)).unwrap();
        assert_eq!(small.start, 1);
        assert_eq!(small.next, [[0, 0, 0], [1, 3, 0], [0, 3, 0], [3; 3]].concat());
    }

    #[test]
    fn minimizing_a_chain_takes_few_steps() {
        for states in [1_000_u32, 4_000] {
            let mut next = vec![[0, 0, 0]];
            next.extend((1..states - 1).map(|state| [state + 1, 0, 0]));
            next.push([states - 1; 3]);
            let mut budget = StepBudget::new(u64::MAX);
            let small = minimize(&table(&next), &mut budget).unwrap();
            assert_eq!(small.states(), states as usize);
            assert!(u64::MAX - budget.left() < u64::from(states) * 200, "{}", u64::MAX - budget.left());
        }
    }
}
