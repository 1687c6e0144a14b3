-- The tables of fastify-items-users, and the role items_users with the privileges that the service needs.
begin;
create table if not exists collections (
    name text primary key, position bigint not null, last_id bigint not null, digest text not null);
create table if not exists collection_schemas (
    name text, digest text, schema text not null, at bigint not null, primary key (name, digest));
create table if not exists idempotency_keys (
    key text, collection text, digest text not null, response text not null, at bigint not null,
    primary key (key, collection));
create index if not exists idempotency_keys_by_age on idempotency_keys (at);
create table "items" (position bigint constraint "items:key" primary key, record text not null, id bigint not null);
create index "items:id" on "items" (id nulls first, position);
insert into "items" (position, id, record) values (1, 1, '{"id":1,"name":"Lamp","price":42.5}');
insert into collections (name, position, last_id, digest) values ('items', 1, 1, 'Pe3vVC_SItZj36wpSVItolj-LiIu8YZP4NFDrGnm1n0');
insert into collection_schemas (name, digest, schema, at) values ('items', 'Pe3vVC_SItZj36wpSVItolj-LiIu8YZP4NFDrGnm1n0', '{"schema":{"type":"object","required":["id","name","price"],"properties":{"id":{"format":"int64","minimum":-9007199254740991,"maximum":9007199254740991,"type":"integer"},"name":{"type":"string"},"price":{"format":"double","type":"number"}}},"columns":[{"field":"id","name":"id","type":"integer","isTime":false,"isUnique":false}]}', 1);
create table "users" (position bigint constraint "users:key" primary key, record text not null, id bigint not null);
create index "users:id" on "users" (id nulls first, position);
insert into "users" (position, id, record) values (1, 1, '{"id":1,"name":"Ada"}');
insert into collections (name, position, last_id, digest) values ('users', 1, 1, 'qpyEGx2Y19Ua6Vgr0qMs_eAIgjnnmVtK-HNoiEJKKDE');
insert into collection_schemas (name, digest, schema, at) values ('users', 'qpyEGx2Y19Ua6Vgr0qMs_eAIgjnnmVtK-HNoiEJKKDE', '{"schema":{"type":"object","required":["id","name"],"properties":{"id":{"format":"int64","minimum":-9007199254740991,"maximum":9007199254740991,"type":"integer"},"name":{"type":"string"}}},"columns":[{"field":"id","name":"id","type":"integer","isTime":false,"isUnique":false}]}', 1);
create role items_users;
grant select on collection_schemas to items_users;
grant select, update on collections to items_users;
grant select, insert, update, delete on idempotency_keys, "items", "users" to items_users;
commit;
