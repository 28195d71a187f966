//! Statements that are put together of fragments, and their parameters.
//!
//! A fragment stands in one file, and in braces where it belongs: the columns of a job, the way from a report to its run. Busy
//! statements take whole batches: one array for each column.

use std::collections::HashMap;

use tokio_postgres::types::ToSql;

use crate::statement::{build, build_with};

/// A statement of `text` with further names replaced. Fragments among `parts` are built too.
pub(super) fn compose(text: &str, parts: &[(&'static str, &str)]) -> String {
    build_with(text, &parts.iter().map(|(name, part)| (*name, build(part))).collect::<HashMap<_, _>>())
}

/// A statement that is put together when it is first used. It lives as long as the program.
macro_rules! composed {
    ($text:expr, $parts:expr) => {{
        static STATEMENT: $crate::statement::Statement =
            $crate::statement::Statement::new(|| $crate::postgres::sql::compose($text, &$parts));
        &**{ &STATEMENT }
    }};
}
pub(super) use composed;

/// The array of one column.
pub(super) type Column<'a> = Box<dyn ToSql + Sync + Send + 'a>;

/// Returns the array of a value of each item.
pub(super) fn column<'i, 'a, I: 'i, T: ToSql + Sync + Send + 'a>(
    items: impl IntoIterator<Item = &'i I>,
    value: impl Fn(&'i I) -> T,
) -> Column<'a> {
    Box::new(items.into_iter().map(value).collect::<Vec<T>>())
}

/// Returns columns as the driver takes parameters.
pub(super) fn params<'a>(columns: &'a [Column<'_>]) -> Vec<&'a (dyn ToSql + Sync)> {
    columns.iter().map(|column| &**column as &(dyn ToSql + Sync)).collect()
}
