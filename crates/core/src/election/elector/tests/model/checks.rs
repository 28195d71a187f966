//! The checks of the model, with and without its rules.

use super::*;

fn small(without: Without) -> Election {
    Election { nodes: 2, until: 3, losses: 0, crashes: 0, resignations: 0, forgets: 0, without }
}

#[test]
fn model_of_the_election_one_leads_and_writes_in_every_order_of_events() {
    let small = small(Without::Nothing);
    model::holds("election", "2 nodes, 3 s", small);
    if model::scaled(false, true) {
        let short = Election { until: 2, ..small };
        model::holds("election", "2 nodes, 2 s, 1 loss", Election { losses: 1, ..short });
        model::holds("election", "2 nodes, 2 s, 1 loss of all data", Election { forgets: 1, ..short });
    }
}

#[test]
fn model_of_the_election_needs_each_of_its_rules() {
    for (lacks, without, forgets, property) in [
        ("the epoch in writes", Without::TheFence, 1, FENCED),
        ("a seal before the first write", Without::TheSeal, 0, SEALED),
        ("seals that only rise", Without::RisingSeals, 1, ONE_HOLDER),
        ("an anchor before the request", Without::TheAnchor, 0, ONE_LEADER),
    ] {
        model::fails("election", lacks, Election { forgets, ..small(without) }, property);
    }
}
