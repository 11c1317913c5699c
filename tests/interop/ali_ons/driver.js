'use strict';
/*
 * ali-ons under remote control: one JSON command a line on stdin, one JSON answer a line on stdout.
 *
 * The client reports trouble by 'error' events and goes on (a consumer that commits nothing yet gets QUERY_NOT_FOUND
 * that way), so errors are events here too and a test decides which of them it minds.
 */
const readline = require('readline');
const { Consumer, Producer, Message } = require('ali-ons');

const nameSrv = process.argv[2];
const producers = new Map();
const consumers = new Map();
const silent = { info() {}, debug() {}, warn() {}, error() {} };

function emit(line) {
  process.stdout.write(JSON.stringify(line) + '\n');
}

function options(more) {
  return Object.assign({
    httpclient: { request() { throw new Error('no HTTP here'); } },
    nameSrv,
    clientIP: '127.0.0.1',
    logger: silent,
    accessKeyId: 'interop',
    accessKeySecret: 'secret',
    pollNameServerInteval: 1000,
    heartbeatBrokerInterval: 1000,
    persistConsumerOffsetInterval: 300,
    rebalanceInterval: 500,
  }, more);
}

function report(source) {
  return err => emit({ event: 'error', source, name: err.name, code: err.code, message: err.message });
}

async function producer(group) {
  if (!producers.has(group)) {
    const made = new Producer(options({ producerGroup: group }));
    made.on('error', report('producer'));
    await made.ready();
    producers.set(group, made);
  }
  return producers.get(group);
}

async function send(command) {
  const by = await producer(command.group);
  const results = [];
  for (let i = 0; i < command.count; i++) {
    const message = new Message(command.topic, command.tag || '', `${command.prefix}-${i}${command.padding || ''}`);
    message.keys = [`${command.prefix}-key-${i}`];
    if (command.deliver_in_ms) message.setStartDeliverTime(Date.now() + command.deliver_in_ms);
    const sent = await by.send(message);
    results.push({
      status: sent.sendStatus, msgId: sent.msgId, offsetMsgId: sent.offsetMsgId,
      queueId: sent.messageQueue.queueId, queueOffset: Number(sent.queueOffset),
    });
  }
  return { results };
}

async function subscribe(command) {
  const consumer = new Consumer(options({
    consumerGroup: command.group,
    instanceName: command.id,
    isBroadcast: Boolean(command.broadcast),
    maxReconsumeTimes: command.max_times === undefined ? 16 : command.max_times,
    consumeFromWhere: command.from === 'last' ? 'CONSUME_FROM_LAST_OFFSET' : 'CONSUME_FROM_FIRST_OFFSET',
  }));
  consumer.on('error', report(command.id));
  const wanted = command.sql ? { expressionType: 'SQL92', subString: command.sql } : command.expression || '*';
  consumer.subscribe(command.topic, wanted, async message => {
    emit({
      event: 'message', consumer: command.id, topic: message.topic, msgId: message.msgId, keys: message.keys,
      tags: message.tags, body: message.body.toString(), queueId: message.queueId,
      queueOffset: Number(message.queueOffset), times: message.reconsumeTimes,
    });
    const fails = command.fail || message.reconsumeTimes < (command.fail_times || 0);
    // Of a redelivered message the library looks at exceptions only, not at what its handler returns.
    if (fails && message.reconsumeTimes > 0) throw new Error('not yet');
    return fails ? Consumer.ACTION_RETRY : undefined;
  });
  await consumer.ready();
  consumers.set(command.id, consumer);
  return {};
}

async function close(command) {
  await consumers.get(command.id).close();
  consumers.delete(command.id);
  return {};
}

const operations = { send, subscribe, close };

async function answer(command) {
  try {
    emit(Object.assign({ reply: command.reply, ok: true }, await operations[command.op](command)));
  } catch (err) {
    emit({ reply: command.reply, ok: false, error: err.name, code: err.code, message: err.message });
  }
}

const lines = readline.createInterface({ input: process.stdin });
lines.on('line', line => {
  const command = JSON.parse(line);
  if (command.op === 'quit') process.exit(0);
  answer(command);
});
lines.on('close', () => process.exit(0));
process.on('unhandledRejection', report('unhandled'));
emit({ event: 'ready' });
