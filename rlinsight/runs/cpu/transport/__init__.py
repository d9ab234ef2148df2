"""Carries weights from a trainer to rollouts over TCP, without NCCL and without pickle.

`wire` frames and authenticates bytes, `handshake` lets both ends prove that they know the run's
secret, `hub` is the trainer's end, `link` a receiver's, `tensors` turns weights into frames.
"""
