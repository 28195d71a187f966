//! The store: every sentence of its port, as a case.
//!
//! Cases keep to what the port promises: whole seconds, ids that rise with the order of storing, no order where none is
//! stated.

pub mod audit;
pub mod cleaning;
pub mod counters;
pub mod dispatch;
pub mod ends;
pub mod epochs;
pub mod in_flight;
pub mod insert;
pub mod list;
pub mod members;
pub mod ownership;
pub mod queues;
pub mod record;
pub mod retry;
pub mod schedules;
pub mod stage;
pub mod unique;
pub mod unreadable;

/// Tests of a store. `$make` is an async function without arguments that gives a
/// [`Subject<dyn Store>`](crate::conformance::Subject) over an empty store.
#[macro_export]
macro_rules! store_conformance {
    ($make:expr) => {
        $crate::conformance_tests!(
            $make,
            (),
            (store::epochs),
            [
                the_sealed_epoch_only_rises,
                a_former_leader_cannot_promote,
                a_former_leader_cannot_dispatch,
                a_former_leader_cannot_judge,
                a_former_leader_cannot_mark_channels_cleaned,
                a_former_leader_cannot_expire,
                a_former_leader_cannot_tick,
                a_former_leader_cannot_remove_workers,
                a_former_leader_cannot_retire_or_forget_a_node,
                a_former_leader_cannot_change_the_roster_of_shard_workers,
                a_former_leader_cannot_expire_the_record_of_acts,
            ]
        );
        $crate::conformance_tests!(
            $make,
            (),
            (store::insert),
            [
                a_stored_job_is_read_back_as_it_was_given,
                insert_returns_in_order,
                nothing_is_a_batch_too,
                get_answers_in_order_and_for_unknown_ids,
                an_id_that_is_known_makes_no_second_job,
                a_queue_too_many_refuses_the_whole_batch,
                a_job_that_was_never_dispatched_has_no_history,
            ]
        );
        $crate::conformance_tests!(
            $make,
            (),
            (store::unique),
            [
                a_key_is_taken_in_every_live_state,
                a_key_is_free_once_its_job_has_ended,
                a_key_holds_within_a_batch,
                a_reserved_key_stays_taken_after_the_end,
                a_reservation_that_ran_out_does_not_free_a_live_jobs_key,
                a_reserved_key_outlives_its_job,
                a_key_is_free_once_its_job_is_purged,
                a_redriven_job_takes_its_key_again,
                a_job_whose_key_is_anothers_is_not_redriven,
            ]
        );
        $crate::conformance_tests!(
            $make,
            (),
            (store::list),
            [
                the_newest_comes_first,
                lists_filter_by_each_field_and_all_together,
                lists_find_types_by_their_prefix,
                lists_find_jobs_by_when_they_were_created,
                lists_find_jobs_in_every_state,
                pages_have_neither_gaps_nor_doubles_while_jobs_arrive,
                a_job_that_changes_between_pages_keeps_its_place,
                a_cursor_that_is_none_of_ours_is_refused,
                an_empty_store_has_one_empty_page,
                a_page_of_jobs_ends_when_its_bytes_are_used_up,
                a_page_of_log_lines_ends_when_its_bytes_are_used_up,
                a_history_is_read_page_by_page,
            ]
        );
        $crate::conformance_tests!(
            $make,
            (),
            (store::dispatch),
            [
                due_jobs_are_promoted_and_no_others,
                a_scheduled_job_is_not_dispatched,
                a_dispatch_carries_what_a_worker_needs,
                a_window_bounds_what_is_taken_and_tells_what_is_left,
                the_owners_that_a_window_names_own_its_first_runs,
                a_job_is_dispatched_once,
                no_more_is_dispatched_than_there_are_executions,
                a_dispatch_ends_when_its_bytes_are_used_up,
                a_job_larger_than_the_bytes_left_waits_for_the_next_dispatch,
                first_stored_is_first_served,
                the_higher_priority_is_served_first,
                priorities_age_so_that_none_starves,
                a_retry_is_ranked_by_when_it_is_due,
                a_paused_queue_is_skipped_and_hinders_no_other,
                a_dispatch_takes_what_the_rule_of_room_says,
                a_dispatch_takes_the_heads_that_the_rule_of_choice_says,
                concurrency_bounds_what_is_in_flight,
                metered_windows_leave_a_record_of_what_was_granted,
                grants_of_all_queues_are_read_together_for_as_long_as_they_are_to_be_kept,
            ]
        );
        $crate::conformance_tests!(
            $make,
            (),
            (store::record),
            [
                a_claim_names_worker_and_owner,
                a_run_that_started_is_running_and_the_first_start_stands,
                progress_and_logs_are_kept,
                logs_are_numbered_on_through_all_runs,
                a_completion_is_stored_as_the_rules_of_a_run_say,
                a_log_line_is_recorded_once_however_often_it_is_reported,
                the_log_of_a_run_ends_at_its_limit_with_a_notice,
                one_report_can_tell_a_whole_run,
                an_end_needs_no_start,
                reports_stand_alone_and_are_answered_in_order,
                one_run_can_be_reported_several_times_in_a_batch,
                an_older_run_is_not_heard_whatever_it_says,
                a_run_that_ended_says_no_more,
                an_end_is_repeated_by_the_same_result_or_error_only,
                an_end_in_the_history_is_repeated_by_the_same_end_only,
                the_word_of_a_cancelled_runs_worker_comes_too_late,
            ]
        );
        $crate::conformance_tests!(
            $make,
            (),
            (store::retry),
            [
                a_failed_run_is_tried_again_after_its_backoff,
                a_job_that_runs_again_forgets_the_run_before,
                a_run_that_completes_clears_the_error_of_those_before,
                an_exhausted_job_is_a_dead_letter_exactly_once,
                a_job_without_retries_has_one_attempt,
                a_worker_can_say_not_to_retry,
                a_lost_run_counts_and_is_followed_at_once,
                the_last_lost_run_is_lost_in_the_history_too,
                a_released_run_does_not_count,
                a_redriven_job_goes_on_with_a_fresh_budget,
            ]
        );
        $crate::conformance_tests!(
            $make,
            (),
            (store::ends),
            [
                every_live_job_can_be_cancelled,
                nobody_owns_a_job_that_has_ended,
                cancelling_what_has_ended_changes_nothing,
                what_failed_or_was_cancelled_can_be_redriven_and_nothing_else,
                the_runs_of_a_redriven_job_are_not_heard_again,
                dead_letters_are_purged_with_all_that_is_theirs,
                ended_jobs_are_purged_by_status_and_live_ones_stay,
                a_completed_job_that_was_purged_leaves_nothing_behind,
            ]
        );
        $crate::conformance_tests!(
            $make,
            (),
            (store::in_flight),
            [
                runs_in_flight_are_told_by_job_id,
                runs_in_flight_are_told_page_by_page,
                runs_in_flight_are_found_by_worker_and_owner,
                runs_that_no_worker_claimed_are_found,
                runs_without_an_owner_and_runs_by_execution_are_found,
                holders_are_the_workers_and_owners_of_runs_in_flight,
                runs_whose_time_is_up_are_told_the_longest_overdue_first,
                a_deadline_counts_from_the_first_start,
                a_run_that_never_says_started_is_timed_from_when_it_was_handed_out,
                a_start_moves_the_deadline_of_a_run_that_was_handed_out,
                a_deadline_beyond_all_time_is_its_end,
            ]
        );
        $crate::conformance_tests!(
            $make,
            (),
            (store::ownership),
            [
                the_first_to_claim_a_free_run_has_it,
                who_does_not_own_a_run_changes_nothing_of_it,
                a_gateway_that_handed_a_run_out_owns_it,
                an_offered_run_is_taken_once_and_stays_the_same_run,
                only_its_owner_can_offer_keep_or_abandon_a_run,
                orphans_and_runs_that_nobody_owns_can_be_taken_by_anyone,
                a_run_that_is_over_cannot_be_taken,
                runs_on_their_way_to_another_owner_are_found,
            ]
        );
        $crate::conformance_tests!(
            $make,
            (),
            (store::cleaning),
            [
                a_job_that_spoke_by_its_channels_is_uncleaned_until_it_is_marked,
                a_job_whose_only_run_came_by_a_gateway_needs_no_cleaning,
                a_job_that_ran_more_than_once_is_cleaned_by_hand,
                a_judged_end_says_nothing_of_channels,
                a_cancelled_job_needs_cleaning_only_if_it_was_ever_dispatched,
                a_redriven_job_must_be_cleaned_again,
                a_job_that_ended_again_since_it_was_due_is_not_marked,
                each_kind_expires_by_its_own_cutoff,
                what_is_not_cleaned_does_not_expire,
                history_and_logs_expire_with_their_job,
                expiry_is_bounded_by_its_limit,
                many_log_lines_expire_in_slices,
                a_job_that_is_redriven_between_slices_keeps_the_rest_of_its_log,
                a_dead_letter_with_many_log_lines_is_purged,
            ]
        );
        $crate::conformance_tests!(
            $make,
            (),
            (store::queues),
            [
                a_queue_comes_with_its_first_job,
                configure_creates_and_changes_only_what_it_names,
                a_queue_tells_since_when_its_oldest_job_waits,
                a_queue_without_jobs_can_be_deleted,
            ]
        );
        $crate::conformance_tests!(
            $make,
            (),
            (store::schedules),
            [
                schedules_are_kept_by_name,
                due_schedules_come_earliest_first,
                due_schedules_end_when_their_bytes_are_used_up,
                a_tick_makes_its_job_and_moves_the_schedule_on,
                a_tick_that_was_planned_from_an_older_state_does_nothing,
                a_tick_has_one_job_however_often_it_comes,
                a_tick_makes_no_job_while_its_unique_key_is_taken,
                a_retry_keeps_the_tick_of_a_schedules_job,
                a_tick_is_skipped_while_a_job_of_its_schedule_is_live,
                ticks_that_may_overlap_all_make_their_jobs,
                a_schedule_can_move_on_without_a_job,
                jobs_outlive_their_schedule,
                a_schedule_is_replaced_only_if_it_is_as_it_was_read,
            ]
        );
        $crate::conformance_tests!(
            $make,
            (),
            (store::members),
            [
                workers_are_kept_by_id,
                nodes_are_kept_by_id,
                a_node_that_is_gone_is_listed_until_it_is_forgotten_or_comes_back,
                the_roster_of_shard_workers_is_a_set_of_rows,
            ]
        );
        $crate::conformance_tests!(
            $make,
            (),
            (store::audit),
            [
                acts_are_kept_as_they_were_given_the_newest_first,
                acts_are_found_by_each_filter_and_all_together,
                the_record_is_read_page_by_page,
                old_acts_expire_and_numbers_are_not_used_again,
                a_shared_value_is_set_by_compare_and_swap,
            ]
        );
        $crate::conformance_tests!($make, (), (store::counters), [counters_equal_counts_through_a_random_workload,]);
    };
}
