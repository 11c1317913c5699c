// MNS's client for Node.js under remote control: the same commands as in driver.py, as far as it has them.
'use strict';

const readline = require('readline');
const Client = require('@alicloud/mns');

const [url, accessKeyId, accessKeySecret] = process.argv.slice(2);
const client = new Client('account', { endpoint: url, accessKeyId, accessKeySecret });
const emit = (line) => process.stdout.write(`${JSON.stringify(line)}\n`);
const encoded = (command, text) => (command.raw ? text : Buffer.from(text).toString('base64'));

function message(command, text) {
  const made = { MessageBody: encoded(command, text) };
  if (command.delay_s !== undefined) made.DelaySeconds = command.delay_s;
  if (command.priority !== undefined) made.Priority = command.priority;
  return made;
}

function described(command, found) {
  return {
    messageId: found.MessageId,
    md5: found.MessageBodyMD5,
    body: command.raw ? found.MessageBody : Buffer.from(found.MessageBody, 'base64').toString(),
    handle: found.ReceiptHandle || '',
    count: Number(found.DequeueCount),
    priority: Number(found.Priority),
    enqueuedMs: Number(found.EnqueueTime),
    visibleMs: Number(found.NextVisibleTime),
    firstMs: Number(found.FirstDequeueTime),
  };
}

function sent(found) {
  return { messageId: found.MessageId, md5: found.MessageBodyMD5, handle: found.ReceiptHandle || '' };
}

// In answers to batches the client gives errors without throwing.
function checked(response) {
  if (response.code >= 400) {
    const failed = response.body.find((one) => one.ErrorCode);
    throw Object.assign(new Error(failed.ErrorMessage), { name: `MNS${failed.ErrorCode}Error` });
  }
  return response.body;
}

const urls = (found, name) => (Array.isArray(found) ? found : found === undefined ? [] : [found]).map((one) => one[name]);

const OPS = {
  create_queue: async (c) => ({ url: (await client.createQueue(c.queue, c.attributes || {})).headers.location }),
  set_queue: async (c) => void (await client.setQueueAttributes(c.queue, c.attributes)),
  get_queue: async (c) => {
    const { body } = await client.getQueueAttributes(c.queue);
    const value = (text) => (/^\d+$/.test(text) ? Number(text) : /^(True|False)$/.test(text) ? text === 'True' : text);
    return { attributes: Object.fromEntries(Object.entries(body).map(([name, text]) => [name, value(text)])) };
  },
  list_queues: async (c) => ({ urls: urls((await client.listQueue(c.marker || '', c.count || 1000, c.prefix || '')).body, 'QueueURL'), marker: '' }),
  delete_queue: async (c) => void (await client.deleteQueue(c.queue)),
  send: async (c) => sent((await client.sendMessage(c.queue, message(c, c.body))).body),
  send_many: async (c) => ({
    messages: checked(await client.batchSendMessage(c.queue, c.bodies.map((one) => message(c, one)))).map(sent),
  }),
  receive: async (c) => described(c, (await client.receiveMessage(c.queue, c.wait_s)).body),
  receive_many: async (c) => ({
    messages: (await client.batchReceiveMessage(c.queue, c.count, c.wait_s)).body.map((one) => described(c, one)),
  }),
  peek: async (c) => described(c, (await client.peekMessage(c.queue)).body),
  peek_many: async (c) => ({ messages: (await client.batchPeekMessage(c.queue, c.count)).body.map((one) => described(c, one)) }),
  delete: async (c) => void (await client.deleteMessage(c.queue, c.handle)),
  delete_many: async (c) => {
    checked(await client.batchDeleteMessage(c.queue, c.handles));
  },
  change: async (c) => {
    const { body } = await client.changeMessageVisibility(c.queue, c.handle, c.seconds);
    return { handle: body.ReceiptHandle, visibleMs: Number(body.NextVisibleTime) };
  },
  create_topic: async (c) => ({ url: (await client.createTopic(c.topic, c.attributes || {})).headers.location }),
  set_topic: async (c) => void (await client.setTopicAttributes(c.topic, c.attributes)),
  get_topic: async (c) => {
    const { body } = await client.getTopicAttributes(c.topic);
    return { attributes: { ...body, MaximumMessageSize: Number(body.MaximumMessageSize) } };
  },
  list_topics: async (c) => ({ urls: urls((await client.listTopic(c.marker || '', c.count || 1000, c.prefix || '')).body, 'TopicURL'), marker: '' }),
  publish: async (c) => {
    const made = { MessageBody: c.body };
    if (c.tag) made.MessageTag = c.tag;
    return sent((await client.publishMessage(c.topic, made)).body);
  },
};

async function answer(command) {
  try {
    emit({ reply: command.reply, ok: true, ...(await OPS[command.op](command)) });
  } catch (error) {
    const code = (error.name.match(/^MNS(\w+)Error$/) || [null, error.name])[1];
    emit({ reply: command.reply, ok: false, error: code, message: error.message });
  }
}

emit({ event: 'ready' });
readline.createInterface({ input: process.stdin }).on('line', (line) => {
  const command = JSON.parse(line);
  if (command.op === 'quit') process.exit(0);
  answer(command);
});
