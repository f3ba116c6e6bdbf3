//! Values of labels, and their counters.

/// Defines an enum whose variants are the values of a metric's label. The number of a variant is its position in `ALL`,
/// so that counters in this order are found by it.
macro_rules! label {
    ($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident = $label:literal,)+ }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(crate) enum $name { $($(#[$variant_doc])* $variant),+ }

        impl $name {
            /// All values.
            pub(crate) const ALL: &[$name] = &[$($name::$variant),+];

            /// Returns the value of the metric's label.
            pub(crate) fn label(self) -> &'static str {
                match self { $($name::$variant => $label),+ }
            }
        }
    };
}
