// Makes an empty database, and removes those of earlier measurements: node database.mjs URL NAME
import pg from 'pg';

const [url, name] = process.argv.slice(2);
const client = new pg.Client({ connectionString: `${url}/postgres` });
await client.connect();
const { rows } = await client.query("select datname from pg_database where datname like 'bench\\_%'");
for (const { datname } of rows) await client.query(`drop database ${client.escapeIdentifier(datname)} with (force)`);
await client.query(`create database ${client.escapeIdentifier(name)}`);
// The writes of one system are not flushed while the next is measured.
await client.query('checkpoint');
await client.end();
