-- The tables of the release before this one, with some records, a counter and a key.
create table collections (name text primary key, version integer not null);
create table "items" (position bigint generated always as identity primary key, "id" bigint not null, "name" text not null, "price" double precision not null);
create index on "items" (id, position);
create table "users" (position bigint generated always as identity primary key, "id" bigint not null, "name" text not null);
create index on "users" (id, position);
create table idempotency_keys (
  collection text not null, key text not null, digest text not null, id bigint not null, at bigint not null,
  primary key (collection, key));
create index idempotency_keys_by_age on idempotency_keys (at);
create table last_ids (collection text primary key, id bigint not null);
insert into collections (name, version) values ('items', 1), ('users', 1), ('idempotency_keys', 1), ('last_ids', 1);
insert into last_ids values ('items', 7), ('users', 0);
insert into items (id, name, price) values (1, 'Lamp', 42.5), (7, 'Kettle', 19.99);
insert into users (id, name) values (1, 'Ada');
