//! The inputs of the fuzzers, and changed ones, on a stable compiler.

use convoke_testkit::fuzz;
use convoke_testkit::scale::Scaled;

const CHANGED: Scaled<usize> = Scaled { quick: 2_000, full: 50_000 };

#[test]
fn any_text_as_a_cron_expression_ticks_in_order_or_is_rejected() {
    // A search can cover forty years.
    fuzz::replay("cron", CHANGED.get() / 20, fuzz::cron);
}

#[test]
fn any_text_as_a_time_reads_the_same_once_it_is_written_or_is_rejected() {
    fuzz::replay("times", CHANGED.get(), fuzz::times);
}

#[test]
fn any_bytes_as_a_message_of_the_bus_read_the_same_once_they_are_written_or_are_rejected() {
    fuzz::replay("bus", CHANGED.get(), fuzz::bus);
}

#[test]
fn any_bytes_as_a_message_of_a_mesh_read_the_same_once_they_are_written_or_are_rejected() {
    fuzz::replay("mesh", CHANGED.get(), fuzz::mesh);
}
