select g.at, g.count from grants g where g.at >= ?1 order by g.at, g.rowid
