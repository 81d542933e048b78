# Ruby's driver of the distribution; what is expected is listed in ../README.md.
# frozen_string_literal: true

require 'mongo'

Mongo::Logger.logger.level = Logger::FATAL

# Checks, and what they count.
module Suite
  @passed = 0
  @failed = 0

  class << self
    attr_reader :passed, :failed

    def check(name)
      yield
      @passed += 1
      puts "ok - #{name}"
    rescue StandardError => e
      @failed += 1
      puts "not ok - #{name}: #{e.full_message(highlight: false)}"
    end
  end
end

def same(expected, found)
  raise "expected #{expected.inspect}, found #{found.inspect}" unless expected == found
end

def fails(code)
  yield
rescue Mongo::Error::OperationFailure => e
  # The driver hands the code out as a part of the text only.
  raise unless e.message.include?("(#{code})")
else
  raise "it did not fail with #{code}"
end

def documents(client)
  orders = client[:orders]
  orders.delete_many
  orders.insert_many((0...1000).map { |number| { _id: number, n: number % 10 } })
  orders.indexes.create_one({ n: 1 })
  found = orders.find({ n: 3 }, sort: { _id: 1 }, batch_size: 7)
  same((3..993).step(10).to_a, found.map { |order| order['_id'] })
  same(100, orders.update_many({ n: 3 }, { '$inc' => { n: 100 } }).modified_count)
  same(103, orders.find_one_and_update({ _id: 3 }, { '$inc' => { n: 1 } })['n'])
  same(1, orders.delete_one({ n: 104 }).deleted_count)
  same(999, orders.count)
  sum = orders.aggregate([{ '$match' => { n: 103 } }, { '$group' => { _id: nil, of: { '$sum' => '$n' } } }]).first
  same(99 * 103, sum['of'])
  fails(11_000) { orders.insert_one({ _id: 1 }) }
end

# The driver of the distribution has sessions but no helpers for transactions yet.
class ByHand
  def initialize(client)
    @client = client
    @session = { id: BSON::Binary.new(SecureRandom.uuid.delete('-').scan(/../).map(&:hex).pack('C*'), :uuid) }
    @number = 0
  end

  def start
    @number += 1
    @starts = true
  end

  def statement(command)
    run(@client.database, command)
  end

  def finish(name)
    run(@client.use(:admin).database, { name => 1 })
  end

  private

  def run(database, command)
    transaction = { lsid: @session, txnNumber: BSON::Int64.new(@number), autocommit: false }
    transaction[:startTransaction] = true if @starts
    @starts = false
    database.command(command.merge(transaction)).first
  end
end

def transaction(client)
  orders = client[:orders]
  orders.delete_many
  orders.insert_one({ _id: 1, n: 1 })
  by_hand = ByHand.new(client)
  by_hand.start
  by_hand.statement({ update: 'orders', updates: [{ q: { _id: 1 }, u: { '$inc' => { n: 1 } } }] })
  same(1, orders.find.first['n'])
  by_hand.finish(:commitTransaction)
  same(2, orders.find.first['n'])
  by_hand.start
  by_hand.statement({ insert: 'orders', documents: [{ _id: 2 }] })
  by_hand.finish(:abortTransaction)
  same(1, orders.count)
end

def change_stream(client)
  orders = client[:orders]
  orders.delete_many
  stream = orders.watch
  events = stream.to_enum
  orders.insert_one({ _id: 1, n: 1 })
  orders.update_one({ _id: 1 }, { '$inc' => { n: 1 } })
  same(1, events.next['fullDocument']['n'])
  same({ 'n' => 2 }, events.next['updateDescription']['updatedFields'])
  stream.close
end

def log_in(password)
  { user: 'root', password: password, auth_source: 'admin', auth_mech: :scram }
end

# The driver's parser of connection strings calls a function that Ruby 3 does not have any more.
def connect(variable, options = {})
  address = ENV.fetch(variable)[%r{//([^/]+)}, 1]
  client = Mongo::Client.new([address], options.merge(database: 'clients_ruby'))
  yield client
ensure
  client&.close
end

Suite.check('the first user') do
  connect('MONGODB_AUTH_URI') do |anonymous|
    anonymous.use(:admin).database.command({ createUser: 'root', pwd: 'pw', roles: ['root'] })
    fails(13) { anonymous[:orders].find.first }
  end
end
servers = {
  'router' => ['MONGODB_URI'],
  'member' => ['MONGODB_REPLICA_SET_URI', { replica_set: 'rs0' }],
  'a user with SCRAM-SHA-1' => ['MONGODB_AUTH_URI', log_in('pw')]
}
servers.each do |name, server|
  %i[documents transaction change_stream].each do |test|
    Suite.check("#{test} of #{name}") { connect(*server) { |client| send(test, client) } }
  end
end
Suite.check('a wrong password') do
  connect('MONGODB_AUTH_URI', log_in('wrong')) { |client| client[:orders].find.first }
rescue Mongo::Auth::Unauthorized
  nil
else
  raise 'it logged in'
end

puts "#{Suite.passed} passed, #{Suite.failed} failed"
exit(Suite.failed.zero? ? 0 : 1)
