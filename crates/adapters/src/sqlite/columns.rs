//! Select lists.
//!
//! The names of a select list are written once: the macro derives from them the text for the statement and the position
//! of each column. So rows are read by name, at the cost of reading by number.

/// A select list: `NAME.list` is its text, `NAME.column` the position of a column.
macro_rules! columns {
    ($name:ident: $type:ident { $first:ident $(, $column:ident)* $(,)? }) => {
        pub(super) struct $type {
            pub(super) list: &'static str,
            pub(super) $first: usize,
            $(pub(super) $column: usize,)*
        }

        pub(super) const $name: $type = {
            let mut at = 0;
            $type {
                list: concat!(stringify!($first) $(, ", ", stringify!($column))*),
                $first: 0,
                $($column: { at += 1; at },)*
            }
        };
    };
}
pub(super) use columns;
