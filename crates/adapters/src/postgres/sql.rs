//! The parameters of statements. Busy statements take whole batches: one array for each column.

use tokio_postgres::types::ToSql;

/// The array of one column.
pub(super) type Column<'a> = Box<dyn ToSql + Sync + Send + 'a>;

/// Returns the array of a value of each item.
pub(super) fn column<'i, 'a, I: 'i, T: ToSql + Sync + Send + 'a>(
    items: impl IntoIterator<Item = &'i I>,
    value: impl Fn(&'i I) -> T,
) -> Column<'a> {
    Box::new(items.into_iter().map(value).collect::<Vec<T>>())
}

/// Returns columns as parameters of the driver.
pub(super) fn params<'a>(columns: &'a [Column<'_>]) -> Vec<&'a (dyn ToSql + Sync)> {
    columns.iter().map(|column| &**column as &(dyn ToSql + Sync)).collect()
}
