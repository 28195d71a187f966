select r.answer, r.of_queue, r.ended_as
from unnest($1::uuid[]) with ordinality g (id, ord)
cross join lateral convoke_redrive(g.id, $2) r
