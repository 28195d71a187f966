select call, id, created, error_code, error_message
from convoke_store_calls($18, $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17)
