select seq from jobs where seq < ?1 order by seq desc
