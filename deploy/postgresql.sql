-- The tables of fastify-items-users, and the role items_users with the privileges that the service needs.
-- Written by npm run schema.
begin;
create table collections (name text primary key, version integer not null);
create table "items" (position bigint generated always as identity primary key, "id" bigint not null, "name" text not null, "price" double precision not null);
create index on "items" (id, position);
insert into collections (name, version) values ('items', 1);
create table "users" (position bigint generated always as identity primary key, "id" bigint not null, "name" text not null);
create index on "users" (id, position);
insert into collections (name, version) values ('users', 1);
create table idempotency_keys ( collection text not null, key text not null, digest text not null, id bigint not null, at bigint not null, primary key (collection, key));
create index idempotency_keys_by_age on idempotency_keys (at);
insert into collections (name, version) values ('idempotency_keys', 1);
create table last_ids (collection text primary key, id bigint not null);
insert into collections (name, version) values ('last_ids', 1);
insert into items (id, name, price) values (1, 'Lamp', 42.5);
insert into last_ids values ('items', 0);
insert into users (id, name) values (1, 'Ada');
insert into last_ids values ('users', 0);
create role items_users;
grant select on collections to items_users;
grant select, insert, delete on items, users to items_users;
grant select, insert, update, delete on idempotency_keys to items_users;
grant select, update on last_ids to items_users;
commit;
