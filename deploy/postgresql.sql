-- The tables of fastify-items-users, and the role items_users with the privileges that the service needs.
-- Written by npm run schema.
begin;
create table collections (name text primary key, version integer not null, columns text not null);
create table idempotency_keys (
    collection text not null, key text not null, digest text not null, id bigint not null, at bigint not null,
    primary key (collection, key));
create table last_ids (collection text primary key, id bigint not null);
create table collection_changes (collection text primary key, changes bigint not null);
create index idempotency_keys_by_age on idempotency_keys (at);
alter table collection_changes drop constraint collection_changes_pkey, add column counter bigint generated always as identity primary key;
create or replace function count_change() returns trigger language plpgsql security definer set search_path = '' as $$
    declare
      counted integer;
    begin
      execute format('update %1$I.collection_changes set changes = changes + 1 where counter = (
        select counter from %1$I.collection_changes where collection = %2$L limit 1 for update skip locked)', tg_table_schema, tg_table_name);
      get diagnostics counted = row_count;
      if counted = 0 then
        execute format('insert into %I.collection_changes values (%L, 1)', tg_table_schema, tg_table_name);
      end if;
      return null;
    end $$;
create table "items" (position bigint generated always as identity (sequence name "items:position") constraint "items:key" primary key, "id" bigint not null check ("id" >= -9007199254740991 and "id" <= 9007199254740991), "name" text not null, "price" double precision not null check (abs("price") < 'Infinity'));
create index "items:id" on "items" (id, position);
insert into last_ids values ('items', 1);
insert into collection_changes values ('items', floor(random() * 1000000000));
create trigger count_changes after update or delete or truncate on "items" for each statement execute function count_change();
insert into collections (name, version, columns) values ('items', 1, '{"id":{"type":"integer","types":["integer"]},"name":{"type":"string","types":["string"]},"price":{"type":"number","types":["number"]}}');
insert into "items" ("id", "name", "price") values ('1', 'Lamp', '42.5');
create table "users" (position bigint generated always as identity (sequence name "users:position") constraint "users:key" primary key, "id" bigint not null check ("id" >= -9007199254740991 and "id" <= 9007199254740991), "name" text not null);
create index "users:id" on "users" (id, position);
insert into last_ids values ('users', 1);
insert into collection_changes values ('users', floor(random() * 1000000000));
create trigger count_changes after update or delete or truncate on "users" for each statement execute function count_change();
insert into collections (name, version, columns) values ('users', 1, '{"id":{"type":"integer","types":["integer"]},"name":{"type":"string","types":["string"]}}');
insert into "users" ("id", "name") values ('1', 'Ada');
create role items_users;
grant select on collections, collection_changes to items_users;
grant select, insert, update, delete on idempotency_keys, "items", "users" to items_users;
grant select, update on last_ids to items_users;
commit;
