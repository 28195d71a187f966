update convoke_probe set at = clock_timestamp() where id = 1
