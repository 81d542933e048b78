<?php
// The PHP extension of the distribution; what is expected is listed in ../README.md.
declare(strict_types=1);

use MongoDB\Driver\BulkWrite;
use MongoDB\Driver\Command;
use MongoDB\Driver\Exception\AuthenticationException;
use MongoDB\Driver\Exception\BulkWriteException;
use MongoDB\Driver\Exception\ServerException;
use MongoDB\Driver\Manager;
use MongoDB\Driver\Query;

const DB = 'clients_php';
const ORDERS = DB . '.orders';

$passed = $failed = 0;

function check(string $name, callable $act): void
{
    global $passed, $failed;
    try {
        $act();
        $passed++;
        echo "ok - $name\n";
    } catch (Throwable $error) {
        $failed++;
        echo "not ok - $name: $error\n";
    }
}

function same(mixed $expected, mixed $found): void
{
    if ($expected !== $found) {
        throw new Exception('expected ' . var_export($expected, true) . ', found ' . var_export($found, true));
    }
}

function fails(int $code, string $class, callable $act): void
{
    try {
        $act();
    } catch (Throwable $error) {
        if ($error instanceof $class && $error->getCode() === $code) {
            return;
        }
        throw $error;
    }
    throw new Exception("it did not fail with $code");
}

function command(Manager $client, array $command, array $options = []): object
{
    return $client->executeCommand(DB, new Command($command), $options)->toArray()[0];
}

function find(Manager $client, array $filter, array $options = [], array $with = []): array
{
    return $client->executeQuery(ORDERS, new Query($filter, $options), $with)->toArray();
}

/** One insert, update or delete. */
function write(Manager $client, string $kind, array $arguments, array $with = []): object
{
    $bulk = new BulkWrite();
    $bulk->$kind(...$arguments);
    return $client->executeBulkWrite(ORDERS, $bulk, $with);
}

function documents(Manager $client): void
{
    write($client, 'delete', [[]]);
    $bulk = new BulkWrite();
    foreach (range(0, 999) as $number) {
        $bulk->insert(['_id' => $number, 'n' => $number % 10]);
    }
    same(1000, $client->executeBulkWrite(ORDERS, $bulk)->getInsertedCount());
    command($client, ['createIndexes' => 'orders', 'indexes' => [['key' => ['n' => 1], 'name' => 'n_1']]]);
    $found = find($client, ['n' => 3], ['sort' => ['_id' => 1], 'batchSize' => 7]);
    same(range(3, 993, 10), array_map(fn ($order) => $order->_id, $found));
    $change = [['n' => 3], ['$inc' => ['n' => 100]], ['multi' => true]];
    same(100, write($client, 'update', $change)->getModifiedCount());
    same(1, write($client, 'delete', [['_id' => 3], ['limit' => 1]])->getDeletedCount());
    $pipeline = [['$match' => ['n' => 103]], ['$group' => ['_id' => null, 'of' => ['$sum' => '$n']]]];
    $aggregate = command($client, ['aggregate' => 'orders', 'pipeline' => $pipeline, 'cursor' => new stdClass()]);
    same(99 * 103, $aggregate->of);
    fails(11000, BulkWriteException::class, fn () => write($client, 'insert', [['_id' => 1]]));
}

function transaction(Manager $client): void
{
    write($client, 'delete', [[]]);
    write($client, 'insert', [['_id' => 1, 'n' => 1]]);
    $session = $client->startSession();
    $with = ['session' => $session];
    $session->startTransaction();
    write($client, 'update', [['_id' => 1], ['$inc' => ['n' => 1]]], $with);
    same(2, find($client, [], [], $with)[0]->n);
    same(1, find($client, [])[0]->n);
    $session->commitTransaction();
    same(2, find($client, [])[0]->n);
    $session->startTransaction();
    write($client, 'insert', [['_id' => 2]], $with);
    $session->abortTransaction();
    same(1, count(find($client, [])));
}

function changeStream(Manager $client): void
{
    write($client, 'delete', [[]]);
    $watch = ['aggregate' => 'orders', 'pipeline' => [['$changeStream' => new stdClass()]], 'cursor' => new stdClass()];
    $stream = $client->executeReadCommand(DB, new Command($watch), []);
    write($client, 'insert', [['_id' => 1, 'n' => 1]]);
    write($client, 'update', [['_id' => 1], ['$inc' => ['n' => 1]]]);
    $events = [];
    // Each step is one getMore that waits for events.
    for ($stream->rewind(); count($events) < 2; $stream->next()) {
        if ($stream->valid()) {
            $events[] = $stream->current();
        }
    }
    same(['insert', 'update'], array_map(fn ($event) => $event->operationType, $events));
    same(1, $events[0]->fullDocument->n);
    same(2, $events[1]->updateDescription->updatedFields->n);
}

$base = getenv('MONGODB_AUTH_URI');
$logIn = fn (string $password, string $mechanism) =>
    str_replace('//', "//root:$password@", $base) . "&authSource=admin&authMechanism=$mechanism";

check('the first user', function () use ($base) {
    $anonymous = new Manager($base);
    $user = ['createUser' => 'root', 'pwd' => 'pw', 'roles' => ['root']];
    $anonymous->executeCommand('admin', new Command($user));
    fails(13, ServerException::class, fn () => find($anonymous, []));
});
$servers = [
    'router' => getenv('MONGODB_URI'),
    'member' => getenv('MONGODB_REPLICA_SET_URI'),
    'a user with SCRAM-SHA-1' => $logIn('pw', 'SCRAM-SHA-1'),
    'a user with SCRAM-SHA-256' => $logIn('pw', 'SCRAM-SHA-256'),
];
foreach ($servers as $name => $uri) {
    foreach (['documents', 'transaction', 'changeStream'] as $test) {
        check("$test of $name", fn () => $test(new Manager($uri)));
    }
}
check('a wrong password', fn () => fails(11, AuthenticationException::class, fn () =>
    find(new Manager($logIn('wrong', 'SCRAM-SHA-256')), [])));

echo "$passed passed, $failed failed\n";
exit($failed > 0 ? 1 : 0);
