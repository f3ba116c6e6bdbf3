//! Random numbers that are the same in every run (splitmix64).

/// A generator of random numbers. The same seed yields the same numbers.
pub struct Random(u64);

impl Random {
    /// Creates a generator from a seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns the next 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number below `limit`, or 0 if `limit` is 0.
    pub fn below(&mut self, limit: usize) -> usize {
        (self.bits() % limit.max(1) as u64) as usize
    }

    /// Returns a number from 0 (inclusive) to 1 (exclusive).
    pub fn part(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Returns one of the items. The n-th item is drawn with weight 1/n.
    pub fn skewed<'a>(&mut self, items: &[&'a str]) -> &'a str {
        let weights = || (1..=items.len()).map(|place| 1.0 / place as f64);
        let mut rest = self.part() * weights().sum::<f64>();
        let mut drawn = items.iter().zip(weights()).skip_while(|(_, weight)| {
            rest -= weight;
            rest >= 0.0
        });
        drawn.next().or(items.last().map(|last| (last, 0.0))).map_or("", |(item, _)| item)
    }
}
