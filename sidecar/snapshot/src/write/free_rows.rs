//! The free rows of a hash table with linear probing, found without visiting every occupied row: names can be chosen so
//! that all of them probe from one row.

/// The free rows of a table whose size is a power of two and which is never full.
pub(super) struct FreeRows {
    /// Links by row: the row itself if it is free, otherwise a row from which the search continues.
    next: Vec<u32>,
    #[cfg(test)]
    pub(super) steps: usize,
}

impl FreeRows {
    pub(super) fn new(size: usize) -> Self {
        let next = (0..u32::try_from(size).unwrap_or(u32::MAX)).collect();
        Self {
            next,
            #[cfg(test)]
            steps: 0,
        }
    }

    /// Takes the first free row from `start` on, wrapping around the end.
    pub(super) fn take(&mut self, start: usize) -> usize {
        let Some(last) = self.next.len().checked_sub(1) else { return 0 };
        let next = |rows: &Self, row: usize| rows.next.get(row).map_or(0, |next| *next as usize);
        let mut row = start & last;
        while next(self, row) != row {
            // Halves the path for later searches.
            let further = next(self, next(self, row));
            if let Some(place) = self.next.get_mut(row) {
                *place = further as u32;
            }
            row = further;
            #[cfg(test)]
            {
                self.steps += 1;
            }
        }
        if let Some(place) = self.next.get_mut(row) {
            *place = ((row + 1) & last) as u32;
        }
        row
    }
}

#[cfg(test)]
mod tests {
    use super::FreeRows;

    #[test]
    fn free_rows_are_taken_in_order_of_linear_probing() {
        let mut rows = FreeRows::new(8);
        assert_eq!([6, 6, 6, 14, 0, 6].map(|start| rows.take(start)), [6, 7, 0, 1, 2, 3]);
    }

    #[test]
    fn free_rows_of_one_bucket_are_found_in_few_steps() {
        let mut rows = FreeRows::new(1 << 17);
        assert!((0..1 << 16).all(|number| rows.take(5) == number + 5));
        assert!(rows.steps < 20 << 16, "{} steps", rows.steps);
    }
}
