// An instance of a mesh as the existing system has it: its keys, its messages, its timings, its errors.
//
// Written from the description of the protocol, to be called by and to call the Rust one. It does no more than that system
// does: where ours adds something (an epoch, a trace, busy instances), this one does not know it.

import { randomUUID } from 'node:crypto';
import { hostname } from 'node:os';
import Redis from 'ioredis';

const HEARTBEAT = `
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
redis.call('ZADD', KEYS[1], now, ARGV[1])
return now`;

const CLEANUP = `
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
local expired = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', now - tonumber(ARGV[1]))
for _, id in ipairs(expired) do
  redis.call('ZREM', KEYS[1], id)
  redis.call('HDEL', KEYS[2], id)
end
return expired`;

const RENEW = `if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('PEXPIRE', KEYS[1], ARGV[2]) end return 0`;
const RELEASE = `if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0`;

export class MeshRequestTimeoutError extends Error {}
export class MeshHandlerError extends Error {}
export class MeshNoHandlerError extends Error {}

export class Mesh {
    instanceId = 0;
    #handlers = new Map();
    #broadcastHandlers = new Map();
    #pending = new Map();
    #timers = [];
    #isLeader = false;
    #token = randomUUID();
    #onCleanedUp = () => {};

    constructor(key, options) {
        const { redis, prefix = 'app', lockPrefix = prefix, heartbeatIntervalMs = 5000, nodeTtlMs = 15000 } = options;
        const { requestTimeoutMs = 10000, leaderTtlMs = 30000, leaderRenewMs = 10000, leaderRetryMs = 5000 } = options;
        Object.assign(this, { heartbeatIntervalMs, nodeTtlMs, requestTimeoutMs, leaderTtlMs, leaderRenewMs, leaderRetryMs });
        this.base = `${prefix}:mesh:${key}`;
        this.lock = `${lockPrefix}:leader:mesh:${key}`;
        this.redis = new Redis(redis);
        // Its check whether the server is ready may come after the subscription, and cost the connection.
        this.subscriber = new Redis({ ...redis, enableReadyCheck: false });
    }

    registerHandler(type, handler) {
        this.#handlers.set(type, handler);
    }

    registerBroadcastHandler(type, handler) {
        this.#broadcastHandlers.set(type, handler);
    }

    setNodeCleanedUpCallback(callback) {
        this.#onCleanedUp = callback;
    }

    get isLeader() {
        return this.#isLeader;
    }

    async start() {
        this.instanceId = await this.redis.incr(`${this.base}:next_id`);
        this.subscriber.on('message', (channel, text) => this.#onMessage(channel, text));
        await this.subscriber.subscribe(this.#channel(this.instanceId), `${this.base}:broadcast`);
        await this.redis.hset(`${this.base}:nodes`, String(this.instanceId), hostname());
        await this.#heartbeat();
        this.#timers.push(setInterval(() => this.#heartbeat().catch(console.error), this.heartbeatIntervalMs));
        this.#stand();
    }

    async stop() {
        this.#timers.forEach(clearInterval);
        for (const { reject, timer } of this.#pending.values()) {
            clearTimeout(timer);
            reject(new Error('MeshService stopped'));
        }
        this.#pending.clear();
        if (this.#isLeader) await this.redis.eval(RELEASE, 1, this.lock, this.#token);
        await this.subscriber.quit();
        await this.redis.zrem(`${this.base}:heartbeats`, String(this.instanceId));
        await this.redis.hdel(`${this.base}:nodes`, String(this.instanceId));
        await this.redis.quit();
    }

    async getNodes() {
        const ids = await this.redis.zrange(`${this.base}:heartbeats`, 0, -1);
        const names = ids.length ? await this.redis.hmget(`${this.base}:nodes`, ...ids) : [];
        return ids.map((id, place) => {
            return { instanceId: Number(id), hostname: names[place] ?? 'unknown', self: Number(id) === this.instanceId };
        });
    }

    async invoke(instanceId, type, data, timeoutMs = this.requestTimeoutMs) {
        if (instanceId === this.instanceId) {
            const handler = this.#handlers.get(type);
            if (!handler) throw new MeshNoHandlerError(type);
            return handler(data);
        }
        const requestId = randomUUID();
        return new Promise((resolve, reject) => {
            const expire = () => {
                this.#pending.delete(requestId);
                reject(new MeshRequestTimeoutError(`${type} on ${instanceId}`));
            };
            this.#pending.set(requestId, { resolve, reject, expire, timeoutMs, timer: setTimeout(expire, timeoutMs) });
            const request = { requestId, senderInstanceId: this.instanceId, type, data, timeoutMs };
            this.redis.publish(this.#channel(instanceId), JSON.stringify(request)).catch(reject);
        });
    }

    async broadcast(type, data, { skipSelf = false } = {}) {
        if (!skipSelf) this.#broadcastHandlers.get(type)?.(data, this.instanceId);
        const message = { broadcast: true, senderInstanceId: this.instanceId, type, data };
        await this.redis.publish(`${this.base}:broadcast`, JSON.stringify(message));
    }

    #channel(id) {
        return `${this.base}:node:${id}`;
    }

    #onMessage(_channel, text) {
        let message;
        try {
            message = JSON.parse(text);
        } catch (error) {
            console.error('malformed', error.message);
            return;
        }
        if (message.broadcast) {
            if (message.senderInstanceId !== this.instanceId) {
                this.#broadcastHandlers.get(message.type)?.(message.data, message.senderInstanceId);
            }
        } else if (message.reply) {
            this.#complete(message);
        } else if (message.heartbeat) {
            const call = this.#pending.get(message.requestId);
            if (!call) return;
            clearTimeout(call.timer);
            call.timer = setTimeout(call.expire, call.timeoutMs);
        } else {
            this.#serve(message).catch(console.error);
        }
    }

    #complete({ requestId, data, error }) {
        const call = this.#pending.get(requestId);
        if (!call) return;
        this.#pending.delete(requestId);
        clearTimeout(call.timer);
        if (error === undefined) call.resolve(data);
        else if (error.startsWith('MESH_NO_HANDLER:')) call.reject(new MeshNoHandlerError(error.slice(16)));
        else call.reject(new MeshHandlerError(error));
    }

    async #serve({ requestId, senderInstanceId, type, data, timeoutMs }) {
        const send = message => this.redis.publish(this.#channel(senderInstanceId), JSON.stringify(message));
        const handler = this.#handlers.get(type);
        if (!handler) return send({ requestId, reply: true, error: `MESH_NO_HANDLER:${type}` });
        const interval = (timeoutMs ?? this.requestTimeoutMs) * 0.75;
        const heartbeats = setInterval(() => send({ requestId, heartbeat: true }), interval);
        try {
            return send({ requestId, reply: true, data: await handler(data) });
        } catch (error) {
            return send({ requestId, reply: true, error: error.message });
        } finally {
            clearInterval(heartbeats);
        }
    }

    async #heartbeat() {
        await this.redis.eval(HEARTBEAT, 1, `${this.base}:heartbeats`, String(this.instanceId));
        if (!this.#isLeader) return;
        const keys = [`${this.base}:heartbeats`, `${this.base}:nodes`];
        for (const id of await this.redis.eval(CLEANUP, 2, ...keys, String(this.nodeTtlMs))) {
            await this.#onCleanedUp(Number(id));
        }
    }

    async #stand() {
        const won = await this.redis.set(this.lock, this.#token, 'PX', this.leaderTtlMs, 'NX').catch(() => null);
        this.#isLeader = won === 'OK';
        if (!this.#isLeader) {
            this.#timers.push(setTimeout(() => this.#stand(), this.leaderRetryMs));
            return;
        }
        const renewing = setInterval(async () => {
            const kept = await this.redis.eval(RENEW, 1, this.lock, this.#token, this.leaderTtlMs).catch(() => 0);
            if (kept) return;
            this.#isLeader = false;
            clearInterval(renewing);
            this.#stand();
        }, this.leaderRenewMs);
        this.#timers.push(renewing);
    }
}
