//! The bus: topics, queues, takeover, multiplexes, closing.

pub mod close;
pub mod multiplex;
pub mod queues;
pub mod readers;
pub mod stage;
pub mod takeover;
pub mod topics;

/// Tests of a bus. `$make` is an async function that gives a [`Subject<dyn Bus>`](crate::conformance::Subject) that nobody
/// else uses, and whose channels have the default prefix; `$advance` is one that lets a duration pass for it: it moves a
/// paused clock, or waits.
#[macro_export]
macro_rules! bus_conformance {
    ($make:expr, $advance:expr) => {
        $crate::conformance_tests!(
            $make,
            ($advance),
            (bus::topics),
            [
                every_subscriber_gets_every_message_in_order,
                one_subscription_hears_several_topics_and_no_other,
                what_was_published_before_does_not_arrive,
                a_waiting_subscriber_is_woken,
                waiting_for_a_message_can_be_given_up,
                a_slow_subscriber_is_told_that_it_missed_something,
            ]
        );
        $crate::conformance_tests!(
            $make,
            ($advance),
            (bus::queues),
            [
                a_read_is_bounded_in_bytes_and_nothing_is_left_behind,
                a_consumer_takes_in_order_and_at_most_what_it_asked_for,
                an_entry_goes_to_one_consumer_of_a_group,
                waiting_consumers_all_get_their_share,
                every_group_gets_every_entry,
                a_group_begins_with_what_the_queue_holds,
                entries_wait_for_a_group_whose_members_have_gone,
                a_batch_may_be_for_many_queues,
                the_backlog_is_what_nobody_was_given,
                a_take_that_is_given_up_has_taken_nothing,
                a_signal_takes_nothing,
                a_consumer_that_left_takes_no_more,
            ]
        );
        $crate::conformance_tests!(
            $make,
            ($advance),
            (bus::takeover),
            [
                what_lies_idle_is_taken_over,
                what_was_acknowledged_is_not_taken_over,
                a_consumer_does_not_take_over_its_own,
                taking_over_begins_the_idle_time_anew,
                who_leaves_leaves_its_entries_at_once,
                who_vanishes_is_taken_over_once_idle,
            ]
        );
        $crate::conformance_tests!(
            $make,
            ($advance),
            (bus::multiplex),
            [
                it_reads_what_is_added_and_nothing_else,
                what_a_queue_holds_already_arrives_too,
                a_waiting_multiplex_is_woken,
                what_is_removed_is_read_no_more,
                what_was_acknowledged_does_not_come_again,
                a_dropped_multiplex_leaves_its_entries_to_the_next,
                several_multiplexes_of_a_queue_share_acknowledgements,
                what_is_finished_is_gone_and_what_came_meanwhile_stays,
                an_emptied_queue_is_read_on,
                a_next_that_is_given_up_has_taken_nothing,
                ten_thousand_queues_are_read_by_one,
            ]
        );
        $crate::conformance_tests!(
            $make,
            ($advance),
            (bus::readers),
            [
                members_of_a_group_are_listed_with_what_they_have_not_acknowledged,
                a_member_is_idle_since_it_last_read,
                an_announcement_reaches_subscribers_and_a_queue_that_keeps_the_last,
            ]
        );
        $crate::conformance_tests!(
            $make,
            ($advance),
            (bus::close),
            [
                a_closed_queue_holds_nothing,
                a_closed_queue_forgets_pending_entries,
                those_who_read_a_closed_queue_go_on,
                an_acknowledgement_from_before_the_close_hits_nothing_new,
                what_is_pushed_after_the_end_was_read_stays,
                queues_that_hold_something_are_found_by_the_beginning_of_their_names,
            ]
        );
    };
}
