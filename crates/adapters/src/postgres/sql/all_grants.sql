select g.at, g.count from convoke_grants g where g.at >= $1 order by g.at, g.seq
